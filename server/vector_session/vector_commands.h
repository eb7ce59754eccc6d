// AppendVectors, ReadVectors, ListVectors: the calls on a vector session, under its lock.
//
// Equation:  none.
// Shapes:    vector_session.h.
// Units:     token_ids, ranks.
// Requires:  the commands passed the edge's checks; page_size > 0.
// Rejects:   FAILED_PRECONDITION, reason WRONG_SESSION_KIND; ABORTED, reason SESSION_DELETED. Append:
//            INVALID_ARGUMENT, reason INVALID_FIELD; RESOURCE_EXHAUSTED, reason TOO_MANY_VECTORS;
//            FAILED_PRECONDITION, reason RIDGE_TOO_SMALL or SUBJECT_BEING_FORGOTTEN. Read: INVALID_ARGUMENT, reason INVALID_FIELD;
//            FAILED_PRECONDITION, reason EMPTY_SESSION. List: ABORTED, reason HISTORY_CHANGED;
//            INVALID_ARGUMENT for a foreign page_token.
// Effects:   a repeated Append returns the first answer.
// Numerics:  vector_session.h.
// Threads:   safe.
#ifndef LETHE_SERVER_VECTOR_SESSION_VECTOR_COMMANDS_H_
#define LETHE_SERVER_VECTOR_SESSION_VECTOR_COMMANDS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "server/scheduler/compute_scheduler.h"
#include "server/session_registry/append_answer.h"
#include "server/session_registry/session_entry.h"
#include "server/vector_session/vector_session.h"

namespace lethe {

struct AppendVectorsCommand {
  absl::Span<const double> keys;
  absl::Span<const double> values;
  std::string subject;
  RequestKey request;
};
absl::StatusOr<AppendReceipt> AppendVectors(const AppendVectorsCommand& command, const Call& call,
                                            ComputeScheduler* scheduler,
                                            const std::shared_ptr<SessionEntry>& entry);

absl::StatusOr<VectorReads> ReadVectors(absl::Span<const double> queries, const Call& call,
                                        ComputeScheduler* scheduler,
                                        const std::shared_ptr<SessionEntry>& entry);

struct ListedVector {
  uint64_t token_id = 0;
  std::string subject;
  std::vector<double> key;
  std::vector<double> value;
};
struct VectorPage {
  std::vector<ListedVector> rows;
  std::string next_page_token;
};
absl::StatusOr<VectorPage> ListVectors(int64_t page_size, const std::string& page_token,
                                       const std::shared_ptr<SessionEntry>& entry);

}  // namespace lethe

#endif  // LETHE_SERVER_VECTOR_SESSION_VECTOR_COMMANDS_H_
