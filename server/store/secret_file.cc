#include "server/store/secret_file.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include <unistd.h>

#include "audit/crypto/key_file.h"
#include "audit/crypto/sha256.h"
#include "kernels/base/status_macros.h"

namespace lethe {

absl::StatusOr<audit::Secret32> LoadOrCreateSecret(const std::string& path) {
  absl::StatusOr<std::string> bytes = audit::ReadKeyFile(path);
  if (absl::IsNotFound(bytes.status())) {
    const audit::Secret32 secret = audit::Secret32::Random();
    const std::string temporary = path + ".new";
    unlink(temporary.c_str());
    LETHE_RETURN_IF_ERROR(audit::WriteKeyFile(temporary, audit::AsStringView(secret.bytes())));
    if (std::rename(temporary.c_str(), path.c_str()) != 0) {
      return absl::UnavailableError(absl::StrCat("cannot write ", path));
    }
    return secret;
  }
  if (!bytes.ok()) return bytes.status();
  std::array<uint8_t, 32> secret{};
  const bool fits = bytes->size() == secret.size();
  if (fits) std::copy(bytes->begin(), bytes->end(), secret.begin());
  audit::SecureWipe(&*bytes);
  if (!fits) return absl::DataLossError(absl::StrCat(path, ": want 32 bytes"));
  audit::Secret32 loaded = audit::Secret32::FromBytes(secret);
  audit::SecureWipe(secret.data(), secret.size());
  return loaded;
}

}  // namespace lethe
