#include "server/store/secret_file.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include <unistd.h>

#include "audit/crypto/key_file.h"
#include "audit/crypto/sha256.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/sync_directory.h"

namespace lethe {
namespace {

constexpr size_t kSecretCheckBytes = 16;

std::string SecretFileBytes(const audit::Secret32& secret) {
  std::string bytes(audit::AsStringView(secret.bytes()));
  audit::Sha256 hash;
  hash.Update("lethe-secret-v1").Update(bytes);
  const audit::Sha256Digest digest = hash.Finish();
  absl::StrAppend(&bytes, audit::AsStringView(digest).substr(0, kSecretCheckBytes));
  return bytes;
}

}  // namespace

absl::StatusOr<audit::Secret32> LoadOrCreateSecret(const std::string& path) {
  absl::StatusOr<std::string> bytes = audit::ReadKeyFile(path);
  if (absl::IsNotFound(bytes.status())) {
    const audit::Secret32 secret = audit::Secret32::Random();
    const std::string temporary = path + ".new";
    unlink(temporary.c_str());
    LETHE_RETURN_IF_ERROR(audit::WriteKeyFile(temporary, SecretFileBytes(secret)));
    if (std::rename(temporary.c_str(), path.c_str()) != 0) {
      return absl::UnavailableError(absl::StrCat("cannot write ", path));
    }
    LETHE_RETURN_IF_ERROR(SyncParentOf(path));
    return secret;
  }
  if (!bytes.ok()) return bytes.status();
  std::array<uint8_t, 32> secret{};
  std::copy_n(bytes->begin(), std::min(bytes->size(), secret.size()), secret.begin());
  audit::Secret32 loaded = audit::Secret32::FromBytes(secret);
  audit::SecureWipe(secret.data(), secret.size());
  const bool fits = *bytes == SecretFileBytes(loaded);
  audit::SecureWipe(&*bytes);
  if (!fits) return absl::DataLossError(absl::StrCat(path, ": is damaged"));
  return loaded;
}

}  // namespace lethe
