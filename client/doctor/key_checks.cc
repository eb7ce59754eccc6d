#include "client/doctor/key_checks.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include <unistd.h>

#include "audit/certificate/trust.h"
#include "audit/crypto/ed25519.h"

namespace lethe::client {
namespace {

namespace fs = std::filesystem;

constexpr char kKeysCheck[] = "keys";
// A new key would not sign as the old one did, so nothing but the old file helps.
constexpr char kRestore[] = "restore the data directory (deploy/OPERATIONS.md, \"Restore\")";
constexpr uintmax_t kSecretBytes = 32;

Finding BrokenKeys(const std::string& found) {
  return {Verdict::kError, kKeysCheck, found, kRestore};
}

// "" when the file is there and may be read.
std::string Unreadable(const fs::path& directory, const char* name) {
  if (access((directory / name).c_str(), R_OK) == 0) return "";
  return absl::StrCat(name, " cannot be read");
}

bool IsTrusted(const audit::TrustStore& trust, const audit::Ed25519PublicKey& record,
               const audit::Ed25519PublicKey& log) {
  const bool has_record =
      std::any_of(trust.record_keys.begin(), trust.record_keys.end(),
                  [&record](const audit::TrustedRecordKey& key) { return key.key == record; });
  const bool has_log =
      std::any_of(trust.log_keys.begin(), trust.log_keys.end(),
                  [&log](const audit::VerifierKey& key) { return key.key == log; });
  return has_record && has_log;
}

// The signing keys, against the trust file.
Finding CheckSigningKeys(const fs::path& directory) {
  const auto record = audit::Ed25519PrivateKey::LoadPem((directory / "keys/record.pem").string());
  if (!record.ok()) return BrokenKeys("keys/record.pem is no key that signs records");
  const auto log = audit::Ed25519PrivateKey::LoadPem((directory / "keys/log.pem").string());
  if (!log.ok()) return BrokenKeys("keys/log.pem is no key that signs heads of the log");
  std::ifstream file(directory / "trust.txt", std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto trust = audit::ParseTrust(text);
  const bool trusted = trust.ok() && IsTrusted(*trust, record->public_key(), log->public_key());
  if (!trusted) {
    return {Verdict::kWarning, kKeysCheck,
            "trust.txt does not name the keys that the server signs with",
            "start the server, which writes it anew, and hand it out again"};
  }
  return {Verdict::kGood, kKeysCheck, "all there, and those that trust.txt names", ""};
}

}  // namespace

Findings CheckKeys(const std::string& directory) {
  const fs::path path(directory);
  std::error_code error;
  if (!fs::exists(path / "keys", error)) {
    return {{Verdict::kNote, kKeysCheck, "none yet; the first start makes them", ""}};
  }
  for (const char* const name :
       {"keys/record.pem", "keys/log.pem", "keys/pseudonym.key", "sessions/data.keys",
        "sessions/ledger.key", "sessions/request.key", "trust.txt"}) {
    if (!fs::exists(path / name, error)) return {BrokenKeys(absl::StrCat(name, " is missing"))};
    const std::string unreadable = Unreadable(path, name);
    if (!unreadable.empty()) {
      return {{Verdict::kNote, kKeysCheck, unreadable, "run lethe doctor as the server's user"}};
    }
  }
  for (const char* const name :
       {"keys/pseudonym.key", "sessions/ledger.key", "sessions/request.key"}) {
    if (fs::file_size(path / name, error) < kSecretBytes) {
      return {BrokenKeys(absl::StrCat(name, " is cut short"))};
    }
  }
  return {CheckSigningKeys(path)};
}

}  // namespace lethe::client
