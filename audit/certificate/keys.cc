#include "audit/certificate/keys.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/crypto/key_file.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/sync_directory.h"

namespace lethe::audit {
namespace {

constexpr char kRecordKeyFile[] = "/record.pem";
constexpr char kLogKeyFile[] = "/log.pem";
constexpr char kPseudonymKeyFile[] = "/pseudonym.key";

absl::StatusOr<Secret32> LoadSecret(const std::string& path) {
  LETHE_ASSIGN_OR_RETURN(std::string contents, ReadKeyFile(path));
  std::array<uint8_t, 32> bytes{};
  const bool ok = contents.size() == bytes.size();
  if (ok) std::copy(contents.begin(), contents.end(), bytes.begin());
  SecureWipe(&contents);
  if (!ok) return absl::InvalidArgumentError(absl::StrCat("key file ", path, ": want 32 bytes"));
  Secret32 secret = Secret32::FromBytes(bytes);
  SecureWipe(bytes.data(), bytes.size());
  return secret;
}

absl::StatusOr<ServerKeys> Load(const std::string& directory) {
  LETHE_ASSIGN_OR_RETURN(Ed25519PrivateKey record_key,
                         Ed25519PrivateKey::LoadPem(directory + kRecordKeyFile));
  LETHE_ASSIGN_OR_RETURN(Ed25519PrivateKey log_key,
                         Ed25519PrivateKey::LoadPem(directory + kLogKeyFile));
  LETHE_ASSIGN_OR_RETURN(const Secret32 pseudonym_key, LoadSecret(directory + kPseudonymKeyFile));
  if (record_key.public_key() == log_key.public_key()) {
    return absl::FailedPreconditionError(
        "keys: record and log key are the same; roles are not shared");
  }
  return ServerKeys{std::make_shared<const Ed25519PrivateKey>(std::move(record_key)),
                    std::make_shared<const Ed25519PrivateKey>(std::move(log_key)), pseudonym_key};
}

}  // namespace

ServerKeys ServerKeys::Generate() {
  return ServerKeys{std::make_shared<const Ed25519PrivateKey>(Ed25519PrivateKey::Generate()),
                    std::make_shared<const Ed25519PrivateKey>(Ed25519PrivateKey::Generate()),
                    Secret32::Random()};
}

absl::StatusOr<ServerKeys> ServerKeys::LoadOrCreate(const std::string& directory) {
  std::error_code error;
  const int num_present =
      static_cast<int>(std::filesystem::exists(directory + kRecordKeyFile, error)) +
      static_cast<int>(std::filesystem::exists(directory + kLogKeyFile, error)) +
      static_cast<int>(std::filesystem::exists(directory + kPseudonymKeyFile, error));
  if (num_present == 3) return Load(directory);
  if (num_present != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "keys: ", directory, " holds some of record.pem, log.pem and pseudonym.key, not all"));
  }
  // Whole under another name first: some of the keys without the others would be refused for ever.
  const std::string staging = directory + ".new";
  std::filesystem::remove_all(staging, error);
  if (!error) std::filesystem::create_directories(staging, error);
  if (!error) {
    std::filesystem::permissions(staging, std::filesystem::perms::owner_all, error);
  }
  if (error) return absl::UnavailableError(absl::StrCat("keys: cannot create ", staging));
  ServerKeys keys = Generate();
  LETHE_RETURN_IF_ERROR(keys.record_key->SavePem(staging + kRecordKeyFile));
  LETHE_RETURN_IF_ERROR(keys.log_key->SavePem(staging + kLogKeyFile));
  LETHE_RETURN_IF_ERROR(
      WriteKeyFile(staging + kPseudonymKeyFile, AsStringView(keys.pseudonym_key.bytes())));
  std::filesystem::rename(staging, directory, error);
  if (error) return absl::UnavailableError(absl::StrCat("keys: cannot create ", directory));
  LETHE_RETURN_IF_ERROR(SyncParentOf(directory));
  return keys;
}

absl::StatusOr<TrustStore> ServerKeys::Trust(absl::string_view log_origin) const {
  LETHE_ASSIGN_OR_RETURN(VerifierKey vkey, MakeVerifierKey(log_origin, log_key->public_key()));
  TrustStore trust;
  trust.record_keys.push_back(TrustedRecordKey{record_key->public_key()});
  trust.log_keys.push_back(std::move(vkey));
  return trust;
}

}  // namespace lethe::audit
