// MethodAccess, RolesFor, CheckRole: which roles a call needs. One table for every method of every service.
//
// Equation:  a principal may call a method when it has one of the method's roles.
// Shapes:    method: the short name ("CreateSession"), which no two services share.
// Units:     none.
// Requires:  none.
// Rejects:   CheckRole: PERMISSION_DENIED, reason ROLE_REQUIRED, metadata roles: before anything of the request is looked at, so
//            it says nothing about what exists. A method that the table lacks is nobody's.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_IDENTITY_METHOD_ACCESS_H_
#define LETHE_SERVER_IDENTITY_METHOD_ACCESS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "server/identity/principal.h"

namespace lethe {

struct MethodAccess {
  absl::string_view method;
  uint8_t roles;
};

absl::Span<const MethodAccess> AllMethodAccess();

// 0: the table lacks the method.
uint8_t RolesFor(absl::string_view method);

absl::Status CheckRole(absl::string_view method, const Principal& principal);

}  // namespace lethe

#endif  // LETHE_SERVER_IDENTITY_METHOD_ACCESS_H_
