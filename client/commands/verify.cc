// lethe verify: the offline check of a certificate. No server, no model, no network.
#include "audit/certificate/verify.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/certificate_files.h"
#include "client/commands/check_report.h"
#include "client/commands/commands.h"
#include "client/commands/files.h"
#include "client/commands/nonce.h"
#include "client/commands/subject_files.h"
#include "client/commands/subject_label.h"
#include "client/commands/trust_file.h"

#include "audit/certificate/dsse.h"
#include "audit/certificate/trust.h"
#include "audit/certificate/verify_subject.h"
#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

struct VerifyArguments {
  std::vector<std::string> paths;
  std::string trust_path;
  std::string nonce_hex;
  std::vector<std::string> previous;
  std::optional<std::string> label;
  std::string label_file;
};

// Which of a certificate's files a path is, by its name.
absl::Status AssignFile(const std::string& path, audit::CertificateFiles* files) {
  const std::string name = std::filesystem::path(path).filename().string();
  LETHE_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path));
  if (name.find("envelope") != std::string::npos) {
    files->envelope = std::move(bytes);
  } else if (name.find("proof") != std::string::npos) {
    files->proof_file = std::move(bytes);
  } else if (name.find("opening") != std::string::npos) {
    files->opening = std::move(bytes);
  } else if (name.find("bundle") != std::string::npos) {
    files->bundle = std::move(bytes);
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": a file's name must say what it is: envelope, proof, opening or bundle"));
  }
  return absl::OkStatus();
}

absl::StatusOr<audit::CertificateFiles> ReadPaths(const std::vector<std::string>& paths) {
  std::error_code error;
  if (paths.size() == 1 && std::filesystem::is_directory(paths[0], error)) {
    return ReadCertificate(paths[0]);
  }
  audit::CertificateFiles files;
  for (const std::string& path : paths) {
    LETHE_RETURN_IF_ERROR(AssignFile(path, &files));
  }
  if (files.envelope.empty() || files.proof_file.empty()) {
    return absl::DataLossError(absl::StrCat(
        "incomplete certificate: ", files.envelope.empty() ? kEnvelopeFile : kProofFile,
        " is missing or empty; a check needs both envelope.json and proof.tlog"));
  }
  return files;
}

// The checks that the earlier records and this one follow one another, or none without --previous.
absl::StatusOr<std::vector<audit::Check>> CheckSequence(const VerifyArguments& arguments,
                                                        const audit::CertificateFiles& files,
                                                        const audit::TrustStore& trust) {
  std::vector<audit::Check> checks;
  if (arguments.previous.empty()) {
    return checks;
  }
  std::vector<audit::CertificateFiles> records;
  for (const std::string& directory : arguments.previous) {
    LETHE_ASSIGN_OR_RETURN(audit::CertificateFiles previous, ReadCertificate(directory));
    records.push_back(std::move(previous));
  }
  records.push_back(files);
  const audit::SequenceReport report = audit::VerifySequence(records, trust);
  for (size_t i = 0; i + 1 < report.records.size(); ++i) {
    const audit::Check* failure = report.records[i].first_failure();
    checks.push_back(
        {.name = absl::StrCat("previous ", arguments.previous[i]),
         .result = failure == nullptr ? audit::CheckResult::kOk : audit::CheckResult::kFailed,
         .detail = failure == nullptr ? "" : absl::StrCat(failure->name, ": ", failure->detail)});
  }
  checks.insert(checks.end(), report.checks.begin(), report.checks.end());
  return checks;
}

// False too for what is no envelope: the checks of a session's record say so.
bool IsSummary(const audit::CertificateFiles& files) {
  const absl::StatusOr<audit::DsseEnvelope> envelope = audit::ParseEnvelope(files.envelope);
  return envelope.ok() && audit::IsSubjectSummary(envelope->payload);
}

absl::Status VerifySummary(Context& context, const VerifyArguments& arguments,
                           audit::CertificateFiles files, const audit::TrustStore& trust,
                           const audit::VerifyOptions& options) {
  audit::SubjectFiles subject;
  subject.summary = std::move(files);
  if (arguments.label.has_value() || !arguments.label_file.empty()) {
    LETHE_ASSIGN_OR_RETURN(subject.label,
                           ReadLabel(arguments.label, arguments.label_file, context));
  }
  std::vector<audit::CertificateFiles> certificates;
  if (arguments.paths.size() == 1) {
    LETHE_ASSIGN_OR_RETURN(certificates, ReadSessionCertificates(arguments.paths[0]));
  }
  const audit::SubjectReport report = audit::VerifySubject(subject, certificates, trust, options);
  PrintSubjectReport(context, report);
  const audit::Check* failure = report.record.first_failure();
  return failure == nullptr
             ? absl::OkStatus()
             : absl::DataLossError(absl::StrCat("verification failed: ", failure->name));
}

absl::Status Verify(Context& context, const VerifyArguments& arguments) {
  LETHE_ASSIGN_OR_RETURN(const audit::TrustStore trust, ReadTrust(arguments.trust_path));
  LETHE_ASSIGN_OR_RETURN(const audit::CertificateFiles files, ReadPaths(arguments.paths));
  LETHE_ASSIGN_OR_RETURN(const std::string nonce, ParseNonce(arguments.nonce_hex));
  audit::VerifyOptions options;
  if (!nonce.empty()) {
    options.expected_nonce = nonce;
  }
  if (IsSummary(files)) return VerifySummary(context, arguments, files, trust, options);
  if (arguments.label.has_value() || !arguments.label_file.empty()) {
    return absl::InvalidArgumentError("--label: only the summary of a forget-subject has a label");
  }
  audit::VerifyReport report = audit::VerifyCertificate(files, trust, options);
  LETHE_ASSIGN_OR_RETURN(const std::vector<audit::Check> sequence,
                         CheckSequence(arguments, files, trust));
  report.checks.insert(report.checks.end(), sequence.begin(), sequence.end());
  PrintReport(context, report);
  const audit::Check* failure = report.first_failure();
  return failure == nullptr
             ? absl::OkStatus()
             : absl::DataLossError(absl::StrCat("verification failed: ", failure->name));
}

}  // namespace

void AddVerifyCommand(CLI::App& app, Context& context) {
  CLI::App* command =
      app.add_subcommand("verify", "Check a certificate offline, against keys that you trust");
  const auto arguments = std::make_shared<VerifyArguments>();
  command
      ->add_option(
          "CERTIFICATE", arguments->paths,
          "Directory of a certificate, or its files (envelope*, proof*, opening*, bundle*)")
      ->required()
      ->expected(1, 4);
  command
      ->add_option("--trust", arguments->trust_path,
                   "File with the record and log keys that you got out of band")
      ->allow_extra_args(false);
  command
      ->add_option("--nonce", arguments->nonce_hex,
                   "The nonce that you sent: the certificate must answer it")
      ->allow_extra_args(false);
  command->add_option(
      "--previous", arguments->previous,
      "Directories of the session's earlier certificates, in order: checks the chain");
  command
      ->add_option("--label", arguments->label,
                   "Of the summary of a forget-subject: the label that it must be about")
      ->allow_extra_args(false);
  command
      ->add_option("--label-file", arguments->label_file,
                   "The same from a file, - for standard input")
      ->allow_extra_args(false);
  command->footer("Example: lethe verify certificate --trust trust.txt");
  command->callback([&context, arguments] { context.Finish(Verify(context, *arguments)); });
}

}  // namespace lethe::client
