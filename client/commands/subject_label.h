// ReadLabel: a subject label from the command line, or from where no list of processes shows it.
//
// Equation:  none.
// Shapes:    a label is 1 to 128 bytes; a file's last newline is not part of it.
// Units:     none.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT: neither or both given, an empty or too long label, a file that cannot be read.
// Effects:   "-" reads standard input to its end.
// Numerics:  none.
// Threads:   owner thread.
#ifndef LETHE_CLIENT_COMMANDS_SUBJECT_LABEL_H_
#define LETHE_CLIENT_COMMANDS_SUBJECT_LABEL_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/commands/context.h"

namespace lethe::client {

absl::StatusOr<std::string> ReadLabel(const std::optional<std::string>& label,
                                      const std::string& file, Context& context);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_SUBJECT_LABEL_H_
