#include "server/session_registry/tenant_bytes.h"

#include <limits>

#include "server/limits/limits.h"

namespace lethe {

int64_t TenantBytes(const SessionRegistry& sessions, absl::string_view tenant) {
  int64_t bytes = 0;
  for (const auto& entry : sessions.List(tenant, "", std::numeric_limits<size_t>::max())) {
    const SessionInfo info = entry->Info();
    bytes += info.state_bytes + info.snapshot_bytes + info.stored_input_bytes;
    if (entry->journal != nullptr) bytes += entry->journal->snapshot_bytes();
  }
  return bytes;
}

absl::Status CheckTenantBytes(const SessionRegistry& sessions, absl::string_view tenant,
                              int64_t max_mib) {
  if (max_mib == 0) return absl::OkStatus();
  const int64_t mib = TenantBytes(sessions, tenant) >> 20;
  if (mib < max_mib) return absl::OkStatus();
  return LimitError({"TENANT_BYTES", "--tenant-mib", max_mib, mib},
                    "this tenant's sessions take as much room as they may; delete one, or forget");
}

}  // namespace lethe
