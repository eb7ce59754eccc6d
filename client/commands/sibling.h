// SiblingProgram: the path of a program that lies beside this one.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   NOT_FOUND when no executable file of that name lies there.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_COMMANDS_SIBLING_H_
#define LETHE_CLIENT_COMMANDS_SIBLING_H_

#include <string>

#include "absl/status/statusor.h"

namespace lethe::client {

absl::StatusOr<std::string> SiblingProgram(const std::string& name);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_SIBLING_H_
