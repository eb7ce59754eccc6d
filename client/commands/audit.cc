// lethe audit log | records | inclusion.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/files.h"
#include "client/commands/option_checks.h"
#include "client/commands/proto_json.h"
#include "client/commands/report.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

absl::Status Log(Context& context) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const v1::GetLogResponse response, client->GetLog(v1::GetLogRequest()));
  if (context.json()) {
    Json object = MessageToJson(response);
    object["checkpoint"] = response.checkpoint();
    context.PrintJson(object);
    return absl::OkStatus();
  }
  context.out() << "Audit log " << OneLine(response.origin()) << "\n";
  FieldTable table;
  table.Add("records", absl::StrCat(response.tree_size()));
  table.Add("log key", response.log_vkey());
  table.Add("record key", FormatHex(response.record_spki()));
  table.Print(context.out());
  context.out()
      << "Newest checkpoint:\n"
      << SafeForTerminal(response.checkpoint())
      << "These keys come from the server itself. Before you trust them, compare them with "
         "keys that you got another way.\n"
      << std::flush;
  return absl::OkStatus();
}

absl::Status Records(Context& context, v1::ListRecordsRequest request) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  request.set_page_size(1000);
  v1::ListRecordsResponse all;
  do {
    LETHE_ASSIGN_OR_RETURN(const v1::ListRecordsResponse page, client->ListRecords(request));
    all.mutable_records()->MergeFrom(page.records());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  if (context.json()) {
    context.PrintJson(Json{{"records", MessageToJson(all)["records"]}});
    return absl::OkStatus();
  }
  if (all.records().empty()) {
    context.out() << "No records.\n" << std::flush;
    return absl::OkStatus();
  }
  RowTable table({"leaf", "seq", "kind", "body"});
  for (const v1::AuditRecord& record : all.records()) {
    table.Add({absl::StrCat(record.leaf_index()),
               record.seq() == 0 ? "-" : absl::StrCat(record.seq()),
               record.kind().empty() ? "-" : record.kind(),
               record.envelope().empty()
                   ? "not kept"
                   : FormatByteCount(static_cast<int64_t>(record.envelope().size()))});
  }
  table.Print(context.out());
  return absl::OkStatus();
}

absl::Status Inclusion(Context& context, const v1::GetInclusionProofRequest& request,
                       const std::string& path) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const v1::GetInclusionProofResponse response,
                         client->GetInclusionProof(request));
  if (!path.empty()) {
    LETHE_RETURN_IF_ERROR(WriteFile(path, response.log_proof()));
  }
  if (context.json()) {
    context.PrintJson(MessageToJson(response));
  } else if (path.empty()) {
    context.out() << response.log_proof() << std::flush;
  } else {
    context.out() << "Wrote the inclusion proof of leaf " << request.leaf_index() << " to " << path
                  << ".\n"
                  << std::flush;
  }
  return absl::OkStatus();
}

void AddProofs(CLI::App& audit, Context& context) {
  CLI::App* inclusion = audit.add_subcommand("inclusion", "Proof that a record is in the log");
  const auto request = std::make_shared<v1::GetInclusionProofRequest>();
  const auto path = std::make_shared<std::string>();
  inclusion
      ->add_option_function<uint64_t>(
          "LEAF", [request](uint64_t leaf) { request->set_leaf_index(leaf); },
          "Position in the log, from 0")
      ->check(WholeNumber())
      ->required();
  inclusion->add_option("--out", *path, "File to write it to (default: print)");
  inclusion->footer("Example: lethe audit inclusion 0 --out proof.tlog");
  inclusion->callback(
      [&context, request, path] { context.Finish(Inclusion(context, *request, *path)); });
}

}  // namespace

void AddAuditCommands(CLI::App& app, Context& context) {
  CLI::App* audit = app.add_subcommand("audit", "The audit log: keys, records, proofs, copies");
  audit->require_subcommand(1);
  audit->footer("Example: lethe audit log");

  CLI::App* log = audit->add_subcommand("log", "Origin, keys and newest checkpoint");
  log->footer("Example: lethe audit log");
  log->callback([&context] { context.Finish(Log(context)); });

  CLI::App* records = audit->add_subcommand("records", "Records of a session, or of the whole log");
  const auto request = std::make_shared<v1::ListRecordsRequest>();
  records->add_option("--session", *request->mutable_session_id(), "Only this session's records");
  records->footer("Example: lethe audit records --session $S");
  records->callback([&context, request] { context.Finish(Records(context, *request)); });

  AddProofs(*audit, context);
  AddAuditConsistencyCommand(*audit, context);
  AddAuditExportCommands(*audit, context);
}

}  // namespace lethe::client
