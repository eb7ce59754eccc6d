// EvictReserve: a certified selection. The reserve keys of a vector session leave it, and a record says
// so.
//
// Equation:  reserve keys have a = 0, so reads and rho do not change by a bit (numerics: dropping them
//            leaves the present solution what it is). A later change may have drawn one of them in: a
//            selection holds for the state it was made in.
// Shapes:    ranges in rank order, maximal runs of consecutive token_ids.
// Units:     seq, epoch: counts from 1 and of changes.
// Requires:  the command passed the edge's checks.
// Rejects:   FAILED_PRECONDITION: reason WRONG_SESSION_KIND; SELECTION_NOT_ALLOWED, when the session was
//            not created for it; NO_RESERVE; EPOCH_PASSED, when certified_seq is not the newest
//            record, certifying the present state; PARTITION_NOT_PROVED, when that record does not
//            prove the partition. DATA_LOSS or UNAVAILABLE, reason AUDIT_LOG. CANCELLED and
//            DEADLINE_EXCEEDED until the record is written. On every error nothing changed.
// Effects:   as ForgetInputs; the record is of kind "select" and follows the certify record.
// Numerics:  server/vector_session/vector_session.h.
// Threads:   safe.
#ifndef LETHE_SERVER_CERTIFICATION_SELECTION_H_
#define LETHE_SERVER_CERTIFICATION_SELECTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/base/byte_io.h"
#include "server/certification/audit_trail.h"
#include "server/scheduler/compute_scheduler.h"
#include "server/session_registry/session_entry.h"

namespace lethe {

struct EvictCommand {
  uint64_t certified_seq = 0;
  std::string nonce;  // empty: the server draws one
  RequestKey request;
};

struct EvictReceipt {
  std::vector<TokenIdRange> evicted;
  int64_t num_evicted = 0;
  int64_t num_inputs = 0;
  uint64_t epoch = 0;                               // after the selection
  std::optional<audit::Sha256Digest> digest_after;  // absent: a later Forget destroyed it
  RecordRef record;
  bool repeated_request = false;
};

// As DecodeForgetAnswer.
absl::StatusOr<std::shared_ptr<StoredAnswer>> DecodeEvictAnswer(
    ByteReader* reader, absl::Span<const RecordRef> records);

absl::StatusOr<EvictReceipt> EvictReserve(const EvictCommand& command, const Call& call,
                                          ComputeScheduler* scheduler, const AuditTrail& trail,
                                          const std::shared_ptr<SessionEntry>& entry);

}  // namespace lethe

#endif  // LETHE_SERVER_CERTIFICATION_SELECTION_H_
