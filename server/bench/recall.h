// RunRecallCase: tells a session a case's text, asks, forgets the record, and compares with a session
// that was never told it.
//
// Shapes:   replies are text as drawn, the stop string included.
// Units:    none.
// Requires: a byte-level model (vocab_id = byte).
// Rejects:  what Session::Append, Generate and Session::Forget reject.
// Effects:  none outside the sessions that it creates and drops.
// Numerics: greedy; a function of model and case.
// Threads:  safe.
#ifndef LETHE_SERVER_BENCH_RECALL_H_
#define LETHE_SERVER_BENCH_RECALL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "server/bench/recall_cases.h"
#include "server/model/model.h"

namespace lethe::bench {

struct RecallOutcome {
  std::string reply;         // to the query, with the record in the session
  std::string reply_after;   // after the Forget of the record's subject
  std::string reply_fresh;   // of a session that was given only the rest
  bool same_digest = false;  // of the last two, before the query
  bool same_logits = false;  // of the last two, bit for bit: next token, and after each query token
  int64_t num_tokens = 0;    // of the session with the record

  // C2: after the Forget nothing can be told from a session that never held the record.
  bool Forgotten() const { return same_digest && same_logits && reply_after == reply_fresh; }
};

// Decodes by Generate with remember = false: greedy, free-running, until a full stop.
absl::StatusOr<RecallOutcome> RunRecallCase(const std::shared_ptr<const Model>& model,
                                            const RecallCase& recall_case);

}  // namespace lethe::bench

#endif  // LETHE_SERVER_BENCH_RECALL_H_
