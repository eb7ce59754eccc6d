#include "client/commands/certificate_files.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/commands/files.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

struct NamedFile {
  const char* name;
  const std::string* bytes;
  bool owner_only;
};

// A device or a pipe in the place of a file keeps its rights.
absl::Status RestrictToOwner(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return absl::OkStatus();
  std::filesystem::permissions(
      path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write, error);
  return error ? absl::InvalidArgumentError(
                     absl::StrCat(path, ": cannot restrict access: ", error.message()))
               : absl::OkStatus();
}

// The file's bytes, or nothing when it is not there.
absl::StatusOr<std::optional<std::string>> ReadIfThere(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return std::optional<std::string>();
  }
  LETHE_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path));
  return std::optional<std::string>(std::move(bytes));
}

absl::StatusOr<std::string> ReadPart(const std::string& directory, const char* name) {
  LETHE_ASSIGN_OR_RETURN(std::optional<std::string> bytes,
                         ReadIfThere(absl::StrCat(directory, "/", name)));
  if (!bytes) return IncompleteError(directory, name);
  return *std::move(bytes);
}

absl::Status OccupiedError(const std::string& directory) {
  return absl::InvalidArgumentError(absl::StrCat(directory, " holds another certificate (",
                                                 kEnvelopeFile,
                                                 "); --out: want another directory"));
}

}  // namespace

absl::Status PrepareDirectory(const std::string& directory) {
  LETHE_RETURN_IF_ERROR(MakeDirectory(directory));
  std::error_code error;
  if (std::filesystem::exists(absl::StrCat(directory, "/", kEnvelopeFile), error)) {
    return OccupiedError(directory);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> WriteCertificate(const std::string& directory,
                                                          const CertificateContent& content) {
  LETHE_RETURN_IF_ERROR(MakeDirectory(directory));
  LETHE_ASSIGN_OR_RETURN(const std::optional<std::string> present,
                         ReadIfThere(absl::StrCat(directory, "/", kEnvelopeFile)));
  if (present && *present != content.certificate.envelope()) return OccupiedError(directory);
  const NamedFile files[] = {
      {.name = kEnvelopeFile, .bytes = &content.certificate.envelope(), .owner_only = false},
      {.name = kProofFile, .bytes = &content.certificate.log_proof(), .owner_only = false},
      {.name = kOpeningFile, .bytes = &content.certificate.opening(), .owner_only = true},
      {.name = kBundleFile, .bytes = &content.bundle, .owner_only = true},
      {.name = kDigestFile, .bytes = &content.digest, .owner_only = true}};
  std::vector<std::string> written;
  for (const NamedFile& file : files) {
    const std::string path = absl::StrCat(directory, "/", file.name);
    if (file.bytes->empty()) {
      std::error_code ignored;
      std::filesystem::remove(path, ignored);
      continue;
    }
    LETHE_RETURN_IF_ERROR(WriteFile(path, *file.bytes));
    if (file.owner_only) {
      LETHE_RETURN_IF_ERROR(RestrictToOwner(path));
    }
    written.emplace_back(file.name);
  }
  return written;
}

absl::Status IncompleteError(const std::string& directory, absl::string_view name) {
  return absl::DataLossError(
      absl::StrCat("incomplete certificate: ", directory, "/", name, " is missing"));
}

absl::StatusOr<audit::CertificateFiles> ReadCertificate(const std::string& directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    return absl::InvalidArgumentError(absl::StrCat(directory, ": no such directory"));
  }
  audit::CertificateFiles files;
  LETHE_ASSIGN_OR_RETURN(files.envelope, ReadPart(directory, kEnvelopeFile));
  LETHE_ASSIGN_OR_RETURN(files.proof_file, ReadPart(directory, kProofFile));
  LETHE_ASSIGN_OR_RETURN(files.opening, ReadIfThere(absl::StrCat(directory, "/", kOpeningFile)));
  LETHE_ASSIGN_OR_RETURN(files.bundle, ReadIfThere(absl::StrCat(directory, "/", kBundleFile)));
  return files;
}

}  // namespace lethe::client
