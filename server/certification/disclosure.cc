#include "server/certification/disclosure.h"

#include <string>

#include "audit/certificate/dsse.h"
#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"

namespace lethe {
namespace {

absl::StatusOr<std::string> AuditorOf(const RecordRef& ref, const AuditTrail& trail) {
  const absl::StatusOr<std::string> body = trail.log->Body(ref.leaf_hash);
  if (!body.ok()) return WithDefaultReason(body.status(), "AUDIT_LOG");
  LETHE_ASSIGN_OR_RETURN(const audit::DsseEnvelope envelope, audit::ParseEnvelope(*body));
  LETHE_ASSIGN_OR_RETURN(const audit::Statement statement, audit::ParseStatement(envelope.payload));
  return statement.auditor;
}

}  // namespace

absl::Status CheckDisclosed(const Principal& principal, const AuditTrail& trail,
                            SessionEntry* entry) {
  if (principal.Has(Role::kUser)) return absl::OkStatus();
  FairMutexLock lock(&entry->mutex);
  LETHE_ASSIGN_OR_RETURN(const AnySession* session, entry->LiveSession());
  for (auto ref = entry->record_refs.rbegin(); ref != entry->record_refs.rend(); ++ref) {
    if (ref->mark.epoch != entry->mark.epoch || ref->num_inputs != session->num_tokens()) break;
    if (ref->kind != audit::RecordKind::kDisclose) continue;
    LETHE_ASSIGN_OR_RETURN(const std::string auditor, AuditorOf(*ref, trail));
    if (auditor == principal.name) return absl::OkStatus();
  }
  return WithErrorInfo(
      absl::PermissionDeniedError("session_id: the present state's content was not disclosed to "
                                  "this credential (Certify with disclose_to)"),
      {"NOT_DISCLOSED", {{"field", "session_id"}}});
}

}  // namespace lethe
