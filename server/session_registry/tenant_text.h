// WithTenant, SplitTenant: a session's name or a request_id as the store keeps it, with the tenant that it belongs to.
//
// Equation:  SplitTenant(WithTenant(t, x)) = (t, x).
// Shapes:    the tenant local's as they are, which is how they were stored before there were tenants; others' behind the
//            tenant's name and a space. Neither a tenant's name nor what is scoped has a space.
// Units:     none.
// Requires:  none.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_SESSION_REGISTRY_TENANT_TEXT_H_
#define LETHE_SERVER_SESSION_REGISTRY_TENANT_TEXT_H_

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "server/identity/principal.h"

namespace lethe {

inline std::string WithTenant(absl::string_view tenant, absl::string_view text) {
  return tenant == kLocalTenant ? std::string(text) : absl::StrCat(tenant, " ", text);
}

// First the tenant.
inline std::pair<std::string, std::string> SplitTenant(const std::string& text) {
  const size_t space = text.find(' ');
  if (space == std::string::npos) return {kLocalTenant, text};
  return {text.substr(0, space), text.substr(space + 1)};
}

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_TENANT_TEXT_H_
