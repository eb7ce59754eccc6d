// Ingest, AppendInputs: bring vocab_ids into a history, piece by piece, so that a Forget or a
// cancellation gets in between.
//
// Equation:  none.
// Shapes:    vocab_ids [count], count >= 1, each in [0, vocab_size) (the edge checked it).
// Units:     token_ids.
// Requires:  nobody else writes to the target.
// Rejects:   Ingest, AppendInputs: CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE (SHUTTING_DOWN)
//            between pieces; INVALID_ARGUMENT, reason CONTEXT_BUDGET with the remaining budget,
//            when the history has no room; ABORTED (SESSION_BUSY, SESSION_DELETED); FAILED_PRECONDITION
//            (SUBJECT_BEING_FORGOTTEN); INTERNAL.
// Effects:   all or nothing: on error every piece already ingested is taken back (its token_ids
//            stay unused).
// Numerics:  the state does not depend on the pieces (contract C1).
// Threads:   safe.
#ifndef LETHE_SERVER_GENERATION_INGEST_H_
#define LETHE_SERVER_GENERATION_INGEST_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "server/generation/generation_target.h"
#include "server/session_registry/append_answer.h"

namespace lethe {

// Tokens evaluated under one hold of the lock: the longest that a Forget waits for a prompt.
inline constexpr int64_t kIngestPieceTokens = 128;

struct IngestOptions {
  std::string subject;
  InputKind kind = InputKind::kPrompt;
  // Called between pieces, unlocked, with the number of tokens done; false = the client is gone.
  std::function<bool(int64_t)> on_piece;
};

// The token_ids given.
absl::StatusOr<TokenIdRange> Ingest(absl::Span<const int32_t> vocab_ids,
                                    const IngestOptions& options, const Call& call,
                                    ComputeScheduler* scheduler, GenerationTarget* target);

// How many more tokens the session may retain: what the model's max_tokens leaves and, unless it is 0, history_tokens.
int64_t RemainingTokens(const Session& session, int64_t history_tokens);

// INVALID_ARGUMENT, reason CONTEXT_BUDGET, naming `field` unless count fits into RemainingTokens.
absl::Status CheckBudget(const Session& session, int64_t history_tokens, int64_t count,
                         absl::string_view field);

struct AppendCommand {
  std::vector<int32_t> vocab_ids;
  std::string subject;
  RequestKey request;
  int64_t history_tokens = 0;  // that the session may retain; 0: as many as the model takes
};
absl::StatusOr<AppendReceipt> AppendInputs(const AppendCommand& command, const Call& call,
                                           ComputeScheduler* scheduler,
                                           const std::shared_ptr<SessionEntry>& entry);

}  // namespace lethe

#endif  // LETHE_SERVER_GENERATION_INGEST_H_
