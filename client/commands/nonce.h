// ParseNonce: the bytes of --nonce.
//
// Equation:  none.
// Shapes:    "" or 16 to 32 bytes.
// Units:     hex digits, two a byte.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT for anything but hex digits or another length.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_COMMANDS_NONCE_H_
#define LETHE_CLIENT_COMMANDS_NONCE_H_

#include <string>

#include "absl/status/statusor.h"

namespace lethe::client {

absl::StatusOr<std::string> ParseNonce(const std::string& hex);

// Bytes of hex digits; nothing else is accepted.
absl::StatusOr<std::string> ParseHex(const std::string& hex);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_NONCE_H_
