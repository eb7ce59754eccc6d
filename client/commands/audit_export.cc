// lethe audit export | fsck: the whole log as files, and everything in it derived again.
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/files.h"
#include "client/commands/held_head.h"
#include "client/commands/progress.h"
#include "client/commands/report.h"
#include "client/commands/trust_file.h"

#include "audit/certificate/record_check.h"
#include "audit/log/closed_log.h"
#include "audit/log/log_check.h"
#include "audit/log/log_export.h"
#include "audit/log/tiles.h"
#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

struct ExportArguments {
  std::string directory;
  std::string trust_path;
  std::string data_path;
  bool bodies = false;
};

struct FsckArguments {
  std::string path;
  std::string trust_path;
  std::string trust_out_path;
};

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// The leaves of the server's log up to its newest head, into the exporter.
absl::Status FetchLeaves(Context& context, Client* client, uint64_t tree_size, bool bodies,
                         audit::LogExporter* exporter) {
  Progress progress(context.io(), "exporting");
  v1::ListRecordsRequest request;
  request.set_page_size(1000);
  uint64_t num_leaves = 0;
  while (num_leaves < tree_size) {
    LETHE_ASSIGN_OR_RETURN(const v1::ListRecordsResponse page, client->ListRecords(request));
    for (const v1::AuditRecord& record : page.records()) {
      if (num_leaves == tree_size) break;  // appended since
      LETHE_RETURN_IF_ERROR(exporter->Add(record.leaf()));
      if (bodies && !record.envelope().empty()) {
        LETHE_RETURN_IF_ERROR(
            exporter->AddBody(audit::MerkleLeafHash(record.leaf()), record.envelope()));
      }
      ++num_leaves;
    }
    progress.Update(absl::StrCat(num_leaves, " of ", tree_size, " records"));
    request.set_page_token(page.next_page_token());
    if (request.page_token().empty()) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ExportServer(Context& context, const ExportArguments& arguments,
                                         audit::LogExporter* exporter) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const v1::GetLogResponse log, client->GetLog(v1::GetLogRequest()));
  absl::StatusOr<audit::VerifierKey> vkey = audit::ParseVerifierKey(log.log_vkey());
  if (!arguments.trust_path.empty()) {
    LETHE_ASSIGN_OR_RETURN(const audit::TrustStore trust, ReadTrust(arguments.trust_path));
    vkey = TrustedLogKey(log.checkpoint(), trust);
  }
  if (!vkey.ok()) return absl::DataLossError(vkey.status().message());
  LETHE_RETURN_IF_ERROR(FetchLeaves(context, client, log.tree_size(), arguments.bodies, exporter));
  LETHE_RETURN_IF_ERROR(exporter->Finish(log.checkpoint(), *vkey));
  return vkey->name;
}

absl::StatusOr<std::string> ExportDirectory(const ExportArguments& arguments,
                                            audit::LogExporter* exporter) {
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<audit::ClosedLog> log,
                         audit::ClosedLog::Open(arguments.data_path + "/log"));
  audit::Findings findings;
  const audit::LogImage image = log->Read(&findings);
  if (!findings.empty()) {
    return absl::DataLossError(absl::StrCat(findings.listed()[0].place, ": ",
                                            findings.listed()[0].what,
                                            "; lethe audit fsck lists everything"));
  }
  for (size_t i = 0; i < image.entries.size(); ++i) {
    LETHE_RETURN_IF_ERROR(exporter->Add(image.entries[i]));
    if (!arguments.bodies) continue;
    const absl::StatusOr<std::string> body = log->Body(i);
    if (body.ok()) {
      LETHE_RETURN_IF_ERROR(exporter->AddBody(image.tree.leaf_hash(i), *body));
    }
  }
  LETHE_RETURN_IF_ERROR(exporter->Finish(image.checkpoint, log->verifier_key()));
  return log->verifier_key().name;
}

absl::Status Export(Context& context, const ExportArguments& arguments) {
  audit::LogExporter exporter(arguments.directory);
  const absl::StatusOr<std::string> origin = arguments.data_path.empty()
                                                 ? ExportServer(context, arguments, &exporter)
                                                 : ExportDirectory(arguments, &exporter);
  if (!origin.ok()) return origin.status();
  const uint64_t num_leaves = exporter.tree().num_leaves();
  if (context.json()) {
    context.PrintJson(Json{{"origin", *origin}, {"tree_size", num_leaves}});
  } else {
    context.out() << "Exported " << num_leaves << " records of " << OneLine(*origin) << " to "
                  << arguments.directory << ".\n"
                  << std::flush;
  }
  return absl::OkStatus();
}

// One log: what it is, what is wrong with it, what its records say of keys.
struct CheckedLog {
  std::string name;
  std::string origin;
  uint64_t num_leaves = 0;
  size_t num_heads = 0;
  audit::RecordSummary records;
  audit::Findings findings;
};

absl::StatusOr<CheckedLog> CheckExport(const std::string& path, const audit::TrustStore& trust) {
  const audit::DirectoryFiles files(path);
  LETHE_ASSIGN_OR_RETURN(const std::string note, files.Read(audit::kCheckpointFile));
  LETHE_ASSIGN_OR_RETURN(const audit::VerifierKey vkey, TrustedLogKey(note, trust));
  CheckedLog checked;
  checked.name = path;
  checked.origin = vkey.name;
  const audit::LogImage image = audit::ReadExport(files, vkey, &checked.findings);
  checked.num_leaves = image.entries.size();
  checked.num_heads = image.head.has_value() ? 1 : 0;
  checked.records = audit::CheckRecords(
      image, vkey.name, trust,
      [&files](uint64_t, const audit::Sha256Digest& leaf_hash) {
        return files.Read(audit::BodyPath(leaf_hash));
      },
      &checked.findings);
  return checked;
}

absl::StatusOr<CheckedLog> CheckLogDirectory(const std::string& path,
                                             const audit::TrustStore& trust) {
  LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<audit::ClosedLog> log, audit::ClosedLog::Open(path));
  CheckedLog checked;
  checked.name = path;
  checked.origin = log->verifier_key().name;
  LETHE_ASSIGN_OR_RETURN(const audit::VerifierKey vkey,
                         TrustedLogKey(absl::StrCat(checked.origin, "\n"), trust));
  if (!(vkey.key == log->verifier_key().key)) {
    checked.findings.Add("log.db", "the log was written under another key than the trusted one");
  }
  const audit::LogImage image = log->Read(&checked.findings);
  checked.num_leaves = image.entries.size();
  checked.num_heads = image.heads.size();
  checked.records = audit::CheckRecords(
      image, vkey.name, trust,
      [&log](uint64_t leaf_index, const audit::Sha256Digest&) { return log->Body(leaf_index); },
      &checked.findings);
  return checked;
}

// An export, a log directory, or a data directory with its present log and those that it left.
absl::StatusOr<std::vector<CheckedLog>> CheckAll(const std::string& path,
                                                 const audit::TrustStore& trust) {
  std::vector<std::string> logs;
  for (int number = 1; Exists(absl::StrCat(path, "/log-", number)); ++number) {
    logs.push_back(absl::StrCat(path, "/log-", number));
  }
  if (Exists(path + "/log/log.db")) logs.push_back(path + "/log");
  if (Exists(path + "/log.db")) logs.push_back(path);
  std::vector<CheckedLog> checked;
  audit::TrustStore known = trust;
  for (const std::string& log : logs) {
    LETHE_ASSIGN_OR_RETURN(CheckedLog one, CheckLogDirectory(log, known));
    if (one.findings.empty()) known = one.records.keys;  // what it says of the next one
    checked.push_back(std::move(one));
  }
  if (!logs.empty()) return checked;
  LETHE_ASSIGN_OR_RETURN(CheckedLog one, CheckExport(path, trust));
  checked.push_back(std::move(one));
  return checked;
}

void PrintText(Context& context, const CheckedLog& log) {
  context.out() << "Log " << OneLine(log.origin) << " in " << log.name << "\n";
  FieldTable table;
  table.Add("records", absl::StrCat(log.num_leaves));
  table.Add("signed heads", absl::StrCat(log.num_heads));
  table.Add("bodies", absl::StrCat(log.records.num_bodies));
  table.Add("sessions", absl::StrCat(log.records.num_sessions));
  table.Add("keyset records", absl::StrCat(log.records.num_keyset_records));
  table.Add("forget-subject", absl::StrCat(log.records.num_subject_records));
  table.Print(context.out());
  for (const audit::Finding& finding : log.findings.listed()) {
    context.out() << "FAILED  " << OneLine(finding.place) << ": " << OneLine(finding.what) << "\n";
  }
  context.out() << (log.findings.empty()
                        ? "Whole: every hash, head, tile, key and body is what the others say.\n"
                        : "")
                << std::flush;
}

Json ToJson(const CheckedLog& log) {
  Json findings = Json::array();
  for (const audit::Finding& finding : log.findings.listed()) {
    findings.push_back({{"place", finding.place}, {"what", finding.what}});
  }
  return {{"path", log.name},
          {"origin", log.origin},
          {"num_leaves", log.num_leaves},
          {"num_heads", log.num_heads},
          {"num_bodies", log.records.num_bodies},
          {"num_sessions", log.records.num_sessions},
          {"num_keyset_records", log.records.num_keyset_records},
          {"num_subject_records", log.records.num_subject_records},
          {"num_findings", log.findings.num_findings()},
          {"findings", findings}};
}

absl::Status Fsck(Context& context, const FsckArguments& arguments) {
  LETHE_ASSIGN_OR_RETURN(const audit::TrustStore trust, ReadTrust(arguments.trust_path));
  LETHE_ASSIGN_OR_RETURN(const std::vector<CheckedLog> logs, CheckAll(arguments.path, trust));
  size_t num_findings = 0;
  Json json = Json::array();
  for (const CheckedLog& log : logs) {
    num_findings += log.findings.num_findings();
    if (context.json()) {
      json.push_back(ToJson(log));
    } else {
      PrintText(context, log);
    }
  }
  if (context.json()) context.PrintJson(Json{{"logs", json}});
  if (num_findings > 0) {
    return absl::DataLossError(absl::StrCat(
        "the log is not whole: ", FormatCount(static_cast<int64_t>(num_findings), "finding")));
  }
  if (arguments.trust_out_path.empty()) return absl::OkStatus();
  return WriteFile(arguments.trust_out_path, audit::WriteTrust(logs.back().records.keys));
}

}  // namespace

void AddAuditExportCommands(CLI::App& audit, Context& context) {
  CLI::App* command = audit.add_subcommand(
      "export", "The whole log as static files (C2SP tlog-tiles); goes on from an earlier export");
  const auto arguments = std::make_shared<ExportArguments>();
  command->add_option("DIR", arguments->directory, "Where to")->required();
  command->add_flag("--bodies", arguments->bodies,
                    "The signed statements too, where they are kept");
  command
      ->add_option("--trust", arguments->trust_path,
                   "File with the log keys that you got out of band (default: the server's word)")
      ->allow_extra_args(false);
  command->add_option("--data", arguments->data_path,
                      "From the data directory of a server that is stopped, not from a server");
  command->footer("Example: lethe audit export mirror --bodies --trust trust.txt");
  command->callback([&context, arguments] { context.Finish(Export(context, *arguments)); });

  CLI::App* fsck = audit.add_subcommand(
      "fsck",
      "Derives everything in a log again and compares: an export, or a stopped server's data");
  const auto fsck_arguments = std::make_shared<FsckArguments>();
  fsck->add_option("DIR", fsck_arguments->path, "Export, log directory or data directory")
      ->required();
  fsck->add_option("--trust", fsck_arguments->trust_path,
                   "File with the record and log keys that you got out of band")
      ->allow_extra_args(false);
  fsck->add_option("--trust-out", fsck_arguments->trust_out_path,
                   "Writes these keys with what the log's own records add to them: later record "
                   "keys, ranges, the next log's key");
  fsck->footer("Example: lethe audit fsck mirror --trust trust.txt");
  fsck->callback([&context, fsck_arguments] { context.Finish(Fsck(context, *fsck_arguments)); });
}

}  // namespace lethe::client
