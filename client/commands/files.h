// ReadFile, ReadInput, WriteFile, MakeDirectory: the program's files.
//
// Equation:  none.
// Shapes:    none.
// Units:     bytes.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT with the path and the system's reason; a file above kFileBytesMax.
// Effects:   WriteFile writes beside the target and renames, so a reader never sees half a file. A link
//            stays and its target is written; a device or a pipe is written into.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_COMMANDS_FILES_H_
#define LETHE_CLIENT_COMMANDS_FILES_H_

#include <cstdint>
#include <istream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lethe::client {

inline constexpr int64_t kFileBytesMax = int64_t{1} << 30;

absl::StatusOr<std::string> ReadFile(const std::string& path);

// The file, or everything on `in` when path is "-".
absl::StatusOr<std::string> ReadInput(const std::string& path, std::istream& in);

absl::Status WriteFile(const std::string& path, absl::string_view bytes);

// Makes the directory and its parents; an existing directory is fine.
absl::Status MakeDirectory(const std::string& path);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_FILES_H_
