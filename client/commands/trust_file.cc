#include "client/commands/trust_file.h"

#include "absl/strings/str_cat.h"
#include "client/commands/files.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {

absl::StatusOr<audit::TrustStore> ReadTrust(const std::string& path) {
  if (path.empty()) {
    return absl::DataLossError(
        "no trusted key: name the keys that you got out of band with --trust FILE; a key inside "
        "the "
        "certificate never counts");
  }
  LETHE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<audit::TrustStore> trust = audit::ParseTrust(text);
  if (!trust.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", trust.status().message()));
  }
  if (trust->record_keys.empty() || trust->log_keys.empty()) {
    return absl::DataLossError(
        absl::StrCat("no trusted key: ", path, " must hold at least one record and one log key"));
  }
  return trust;
}

}  // namespace lethe::client
