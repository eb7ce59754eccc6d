// TenantBytes, CheckTenantBytes: how much of the server a tenant's sessions take.
//
// Equation:  the sum over its sessions of what GetSession shows: states, snapshots and stored inputs in memory, and of snapshots on
//            disk.
// Shapes:    none.
// Units:     bytes; max_mib in MiB, 0: no limit.
// Requires:  none.
// Rejects:   CheckTenantBytes: RESOURCE_EXHAUSTED, reason TENANT_BYTES, when there is no room for anything more. What is let in may
//            exceed the limit by what it brings.
// Effects:   none.
// Numerics:  O(sessions of the tenant), without waiting for an evaluation.
// Threads:   safe.
#ifndef LETHE_SERVER_SESSION_REGISTRY_TENANT_BYTES_H_
#define LETHE_SERVER_SESSION_REGISTRY_TENANT_BYTES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "server/session_registry/session_registry.h"

namespace lethe {

int64_t TenantBytes(const SessionRegistry& sessions, absl::string_view tenant);

absl::Status CheckTenantBytes(const SessionRegistry& sessions, absl::string_view tenant,
                              int64_t max_mib);

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_TENANT_BYTES_H_
