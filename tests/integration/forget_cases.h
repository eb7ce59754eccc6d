// ForgetCase, RunForgetCase: random lives of sessions for the exact-forgetting property test.
//
// A case is plain data: for each of its sessions a list of operations whose numbers are read modulo
// what the session holds when they run, so that RapidCheck may shrink any of them. RunForgetCase
// lives every session (each on its own thread when the case says so), stages each Forget on both
// paths (replay and re-evaluation), compares the two, commits one and compares the session with an
// oracle that was given the retained vocab_ids alone.
//
// Requires: the oracle answers for a fresh session.
// Threads:  RunForgetCase calls the oracle from one thread at a time.
#ifndef LETHE_TESTS_INTEGRATION_FORGET_CASES_H_
#define LETHE_TESTS_INTEGRATION_FORGET_CASES_H_

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/model/model.h"
#include "server/session/session.h"

namespace lethe::testing {

enum class OperationKind { kAppend, kGenerate, kForget };

struct Operation {
  OperationKind kind = OperationKind::kAppend;
  uint32_t size = 0;    // tokens to append or generate; what to forget
  uint32_t where = 0;   // cut pattern, sampling seed, place of the Forget
  uint32_t policy = 0;  // even: keep derived tokens, odd: forget them
};

struct ForgetCase {
  uint32_t stack = 0;  // index of the model, modulo their number
  bool threads = false;
  std::vector<std::vector<Operation>> sessions;
};

std::ostream& operator<<(std::ostream& stream, const ForgetCase& value);

// What a session must share with the fresh one, bit for bit. The counters are no part of it: they say what
// the history put the memories through (docs of forget_property_test.cc).
struct Observation {
  std::string digest_parts;  // one "name hash" line each
  std::string logits;        // f32 bits, hexadecimal; empty when nothing is retained
  std::string text;          // vocab_ids of a seeded sample with repetition penalty
};

// Observes a session without changing it.
absl::StatusOr<Observation> Observe(const Session& session);

using Oracle = std::function<absl::StatusOr<Observation>(uint32_t stack,
                                                         const std::vector<int32_t>& vocab_ids)>;

// What the histories of a run covered, for the coverage the test promises.
struct Coverage {
  int64_t forgets = 0;
  int64_t replays = 0;         // of these, reached by replay as well as by re-evaluation
  int64_t dropped_inputs = 0;  // tokens whose stored inputs a replay had to evaluate again
  int64_t longest = 0;
  int64_t three_chunks = 0;   // cases whose longest history had at least 3 chunks
  int64_t beyond_window = 0;  // longer than the local receptive field + 128
  int64_t very_long = 0;      // at least 1,500 tokens
  int64_t at_grid = 0;        // ended at 64j - 1, 64j or 64j + 1 before a Forget
  int64_t cases = 0;
};

// Empty when every comparison held, else what differed first.
std::string RunForgetCase(const ForgetCase& forget_case,
                          const std::vector<std::shared_ptr<const Model>>& stacks,
                          const Oracle& oracle, Coverage* coverage);

}  // namespace lethe::testing

#endif  // LETHE_TESTS_INTEGRATION_FORGET_CASES_H_
