#include "client/commands/subject_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/commands/certificate_files.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

constexpr char kSessionsFolder[] = "sessions";

// A name that a server gave may not lead out of the folder.
bool IsPlainName(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

}  // namespace

absl::Status WriteSummary(const std::string& directory, const v1::SubjectSummary& summary) {
  CertificateContent content;
  content.certificate.set_envelope(summary.envelope());
  content.certificate.set_log_proof(summary.log_proof());
  content.certificate.set_opening(summary.opening());
  return WriteCertificate(directory, content).status();
}

absl::Status WriteSessionCertificate(const std::string& directory, const std::string& session_id,
                                     const v1::Certificate& certificate) {
  if (!IsPlainName(session_id)) {
    return absl::DataLossError("the server sent a session id that is none");
  }
  CertificateContent content;
  content.certificate = certificate;
  return WriteCertificate(absl::StrCat(directory, "/", kSessionsFolder, "/", session_id), content)
      .status();
}

absl::StatusOr<std::vector<audit::CertificateFiles>> ReadSessionCertificates(
    const std::string& directory) {
  const std::string folder = absl::StrCat(directory, "/", kSessionsFolder);
  std::error_code error;
  std::vector<std::string> paths;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    paths.push_back(it->path().string());
  }
  if (error && std::filesystem::exists(folder)) {
    return absl::InvalidArgumentError(absl::StrCat(folder, ": ", error.message()));
  }
  std::sort(paths.begin(), paths.end());
  std::vector<audit::CertificateFiles> certificates;
  for (const std::string& path : paths) {
    LETHE_ASSIGN_OR_RETURN(audit::CertificateFiles files, ReadCertificate(path));
    certificates.push_back(std::move(files));
  }
  return certificates;
}

}  // namespace lethe::client
