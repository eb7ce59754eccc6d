#include "client/commands/nonce.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

constexpr size_t kNonceBytesMin = 16;
constexpr size_t kNonceBytesMax = 32;

}  // namespace

absl::StatusOr<std::string> ParseHex(const std::string& hex) {
  if (hex.size() % 2 != 0 || !std::all_of(hex.begin(), hex.end(), [](char c) {
        return absl::ascii_isxdigit(static_cast<unsigned char>(c));
      })) {
    return absl::InvalidArgumentError("want an even number of hex digits");
  }
  return absl::HexStringToBytes(hex);
}

absl::StatusOr<std::string> ParseNonce(const std::string& hex) {
  const absl::StatusOr<std::string> bytes = ParseHex(hex);
  if (!bytes.ok() ||
      (!bytes->empty() && (bytes->size() < kNonceBytesMin || bytes->size() > kNonceBytesMax))) {
    return absl::InvalidArgumentError("--nonce: want 16 to 32 bytes, 32 to 64 hex digits");
  }
  return *bytes;
}

}  // namespace lethe::client
