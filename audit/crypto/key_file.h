// ReadKeyFile, WriteKeyFile, DestroyKeyFile: files that hold a secret, readable by their owner alone.
//
// Equation:  none.
// Shapes:    at most kKeyFileBytesMax bytes.
// Units:     bytes.
// Requires:  none.
// Rejects:   ReadKeyFile: NOT_FOUND; FAILED_PRECONDITION when group or others have any permission;
//            INVALID_ARGUMENT when too long or no regular file; UNAVAILABLE on an input error.
//            WriteKeyFile: ALREADY_EXISTS, UNAVAILABLE.
// Effects:   WriteKeyFile makes a new file, mode 0600, and syncs it and its directory before it
//            returns; on error no file is left.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_CRYPTO_KEY_FILE_H_
#define LETHE_AUDIT_CRYPTO_KEY_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lethe::audit {

inline constexpr size_t kKeyFileBytesMax = 65536;

absl::StatusOr<std::string> ReadKeyFile(const std::string& path);
absl::Status WriteKeyFile(const std::string& path, absl::string_view contents);
// Overwrites the file with zeros, syncs it and removes it.
absl::Status DestroyKeyFile(const std::string& path);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CRYPTO_KEY_FILE_H_
