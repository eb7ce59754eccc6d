// Principal, Role: who makes a call, as the server's inner layers know it.
//
// Equation:  none.
// Shapes:    tenant: 1 to 63 characters of [a-z0-9-], beginning and ending with a letter or digit. name: likewise; it
//            names a credential in the log, never a person.
// Units:     none.
// Requires:  none.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   a value.
#ifndef LETHE_SERVER_IDENTITY_PRINCIPAL_H_
#define LETHE_SERVER_IDENTITY_PRINCIPAL_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace lethe {

// What a principal may do within its tenant. kOperator alone reaches beyond a tenant, and never content.
enum class Role : uint8_t {
  kUser = 1,      // sessions and their content: create, append, generate, list, delete
  kEraser = 2,    // Forget, ForgetSubject and their receipts
  kAuditor = 4,   // certificates, log, counts, salted roots
  kOperator = 8,  // counts, health and limits of the whole server
};

struct NamedRole {
  absl::string_view name;
  Role role;
};
inline constexpr NamedRole kNamedRoles[] = {{"user", Role::kUser},
                                            {"eraser", Role::kEraser},
                                            {"auditor", Role::kAuditor},
                                            {"operator", Role::kOperator}};

struct Principal {
  std::string tenant;
  std::string name;
  uint8_t roles = 0;

  bool Has(Role role) const { return (roles & static_cast<uint8_t>(role)) != 0; }
};

inline constexpr uint8_t kAllRoles = 15;
inline constexpr char kLocalTenant[] = "local";

// Whoever calls a server that asks for no credential, which listens on loopback only: every role, tenant "local". Sessions
// that were stored before there were tenants are this tenant's.
inline const Principal& LocalPrincipal() {
  static const Principal* const kLocal = new Principal{kLocalTenant, "local", kAllRoles};
  return *kLocal;
}

}  // namespace lethe

#endif  // LETHE_SERVER_IDENTITY_PRINCIPAL_H_
