// ForgetInputs: removes inputs from a session, its state, its running forks and its past openings,
// and records that, as one step.
//
// Equation:  none.
// Shapes:    ranges in rank order, maximal runs of consecutive token_ids.
// Units:     token_ids, ranks before the Forget; duration in microseconds.
// Requires:  the command passed the edge's checks.
// Rejects:   NOT_FOUND, reason INPUT_NOT_FOUND; INVALID_ARGUMENT, reason INVALID_SELECTION;
//            FAILED_PRECONDITION, reason DERIVED_TOKENS (policy kFail); DATA_LOSS or UNAVAILABLE,
//            reason AUDIT_LOG, when the log takes no record; reason SESSION_STORE, when the store takes no change;
//            CANCELLED and DEADLINE_EXCEEDED until
//            the record is written. On every error nothing changed.
// Effects:   the shorter state is computed (a model's beside the present one, a vector session's in its
//            place, without a look at the caller until the record), the record is appended to the
//            log, then state, openings and forks are replaced under the session's lock. A fork
//            drops what its session drops and its own inputs with a forgotten label; its derived
//            tokens follow the policy (kFail: they go) and never refuse a Forget.
// Numerics:  session.h.
// Threads:   safe.
#ifndef LETHE_SERVER_CERTIFICATION_FORGETTER_H_
#define LETHE_SERVER_CERTIFICATION_FORGETTER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/base/byte_io.h"
#include "server/certification/audit_trail.h"
#include "server/certification/session_methods.h"
#include "server/scheduler/compute_scheduler.h"
#include "server/session_registry/session_entry.h"

namespace lethe {

struct ForgetCommand {
  ForgetSelector selector;
  DerivedPolicy policy = DerivedPolicy::kUnspecified;
  std::optional<ForgetWay> way;  // unset: the cheaper
  bool validate_only = false;
  std::string nonce;  // empty: the server draws one
  RequestKey request;
};

struct ForgetReceipt {
  std::vector<TokenIdRange> forgotten;  // derived ones included
  int64_t num_forgotten = 0;
  std::vector<TokenIdRange> derived_kept;
  std::vector<TokenIdRange> derived_forgotten;
  int64_t first_rank = 0;
  int64_t num_inputs = 0;
  int64_t num_reevaluated = 0;
  int64_t num_local_reevaluated = 0;
  int64_t num_replayed = 0;
  int64_t num_snapshots_destroyed = 0;
  std::vector<GroupMethod> methods;
  std::optional<audit::Sha256Digest> digest_after;  // absent: only validated, or destroyed later
  std::optional<RecordRef> record;                  // absent: only validated
  int64_t duration_us = 0;                          // up to the record
  bool repeated_request = false;
};

// The policy's name in records.
audit::DerivedPolicy ToAuditPolicy(DerivedPolicy policy);

// The answer to a repeat, from what the session store kept of it behind its kind; `records`: of its session.
absl::StatusOr<std::shared_ptr<StoredAnswer>> DecodeForgetAnswer(
    ByteReader* reader, absl::Span<const RecordRef> records);

absl::StatusOr<ForgetReceipt> ForgetInputs(const ForgetCommand& command, const Call& call,
                                           ComputeScheduler* scheduler, const AuditTrail& trail,
                                           const std::shared_ptr<SessionEntry>& entry);

}  // namespace lethe

#endif  // LETHE_SERVER_CERTIFICATION_FORGETTER_H_
