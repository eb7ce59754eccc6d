// lethe session create | get | list | delete.
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/option_checks.h"
#include "client/commands/proto_json.h"
#include "client/commands/report.h"
#include "client/commands/vector_text.h"
#include "google/protobuf/util/time_util.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

struct CreateOptions {
  v1::CreateSessionRequest request;
  std::optional<int32_t> ovq_slots;
  std::optional<double> sv_box_mass;
  std::optional<double> sv_sigma;
  std::optional<double> sv_ridge;
  bool id_only = false;
};

std::string DescribeOptions(const v1::MemoryOptions& options) {
  std::string text;
  if (options.has_ovq_slots()) {
    absl::StrAppend(&text, "ovq_slots ", options.ovq_slots(), " ");
  }
  if (options.has_sv_box_mass()) {
    absl::StrAppend(&text, "sv_box_mass ", FormatDouble(options.sv_box_mass()), " ");
  }
  if (options.has_sv_sigma()) {
    absl::StrAppend(&text, "sv_sigma ", FormatDouble(options.sv_sigma()), " ");
  }
  if (options.has_sv_ridge()) {
    absl::StrAppend(&text, "sv_ridge ", FormatDouble(options.sv_ridge()), " ");
  }
  return text.empty() ? "the model's own" : text.substr(0, text.size() - 1);
}

std::string ModelText(const v1::Session& session) {
  return session.has_vector_options() ? "none (vector session)" : session.model();
}

void PrintSession(Context& context, const v1::Session& session) {
  if (context.json()) {
    context.PrintJson(MessageToJson(session));
    return;
  }
  context.out() << "Session " << OneLine(session.session_id()) << "\n";
  FieldTable table;
  if (!session.display_name().empty()) {
    table.Add("name", session.display_name());
  }
  const bool has_vectors = session.has_vector_options();
  table.Add("model", ModelText(session));
  if (has_vectors) {
    AddVectorFields(session.vector_options(), &table);
  } else {
    table.Add("memory options", DescribeOptions(session.memory_options()));
  }
  table.Add("inputs retained", absl::StrCat(session.num_inputs()));
  table.Add("inputs forgotten", absl::StrCat(session.num_forgotten()));
  table.Add("support vectors", absl::StrCat(session.num_support_vectors()));
  table.Add("state", FormatByteCount(session.state_bytes()));
  if (has_vectors) {
    table.Add("epoch", absl::StrCat(session.epoch()));
    table.Add("slow solves", absl::StrCat(session.num_slow_solves()));
  } else {
    table.Add("snapshots", absl::StrCat(session.num_snapshots(), " (",
                                        FormatByteCount(session.snapshot_bytes()), ")"));
    table.Add("stored inputs", FormatByteCount(session.stored_input_bytes()));
  }
  table.Add("newest audit record",
            session.audit_seq() == 0 ? "none" : absl::StrCat("seq ", session.audit_seq()));
  table.Add("created", google::protobuf::util::TimeUtil::ToString(session.create_time()));
  table.Print(context.out());
}

absl::Status Create(Context& context, CreateOptions& options) {
  v1::MemoryOptions* memory = options.request.mutable_memory_options();
  if (options.ovq_slots) {
    memory->set_ovq_slots(*options.ovq_slots);
  }
  if (options.sv_box_mass) {
    memory->set_sv_box_mass(*options.sv_box_mass);
  }
  if (options.sv_sigma) {
    memory->set_sv_sigma(*options.sv_sigma);
  }
  if (options.sv_ridge) {
    memory->set_sv_ridge(*options.sv_ridge);
  }
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const v1::CreateSessionResponse response,
                         client->CreateSession(options.request));
  if (context.json()) {
    context.PrintJson(MessageToJson(response.session()));
  } else if (options.id_only) {
    context.out() << response.session().session_id() << "\n" << std::flush;
  } else {
    context.out() << "Created session " << OneLine(response.session().session_id()) << " on model "
                  << OneLine(response.session().model()) << ".\n"
                  << std::flush;
  }
  return absl::OkStatus();
}

absl::Status Get(Context& context, const v1::GetSessionRequest& request) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const v1::GetSessionResponse response, client->GetSession(request));
  PrintSession(context, response.session());
  return absl::OkStatus();
}

absl::Status List(Context& context) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::ListSessionsRequest request;
  request.set_page_size(1000);
  v1::ListSessionsResponse all;
  do {
    LETHE_ASSIGN_OR_RETURN(const v1::ListSessionsResponse response, client->ListSessions(request));
    all.mutable_sessions()->MergeFrom(response.sessions());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  if (context.json()) {
    context.PrintJson(Json{{"sessions", MessageToJson(all)["sessions"]}});
    return absl::OkStatus();
  }
  if (all.sessions().empty()) {
    context.out() << "No sessions. Make one with: lethe session create (or lethe vectors create)\n"
                  << std::flush;
    return absl::OkStatus();
  }
  RowTable table({"session", "model", "inputs", "forgotten", "state", "created", "name"});
  for (const v1::Session& session : all.sessions()) {
    table.Add({session.session_id(), ModelText(session), absl::StrCat(session.num_inputs()),
               absl::StrCat(session.num_forgotten()), FormatByteCount(session.state_bytes()),
               google::protobuf::util::TimeUtil::ToString(session.create_time()),
               session.display_name()});
  }
  table.Print(context.out());
  return absl::OkStatus();
}

absl::Status Delete(Context& context, const v1::DeleteSessionRequest& request) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const v1::DeleteSessionResponse response, client->DeleteSession(request));
  if (context.json()) {
    context.PrintJson(MessageToJson(response));
  } else {
    context.out() << "Deleted session " << OneLine(request.session_id()) << " with "
                  << FormatCount(response.num_inputs(), "input") << ".\n"
                  << std::flush;
  }
  return absl::OkStatus();
}

void AddCreate(CLI::App& session, Context& context) {
  CLI::App* command = session.add_subcommand("create", "Create an empty session");
  const auto options = std::make_shared<CreateOptions>();
  command->add_option("--model", *options->request.mutable_model(),
                      "Model name (default: the server's only model)");
  command->add_option("--name", *options->request.mutable_display_name(),
                      "Display name, shown in lists; no personal data here");
  command->add_option("--ovq-slots", options->ovq_slots, "Slots of every OVQ memory")
      ->check(Int32FromZero());
  command
      ->add_option("--sv-box-mass", options->sv_box_mass, "Box mass 1/C of every SV-Attention head")
      ->check(Number("from 1 to 1048576"));
  command->add_option("--sv-sigma", options->sv_sigma, "Kernel width of every SV-Attention head")
      ->check(Number("from 2^-20 to 2^20"));
  command->add_option("--sv-ridge", options->sv_ridge, "Ridge of every SV-Attention head")
      ->check(Number("from 1e-8 to 1"));
  command->add_option("--request-id", *options->request.mutable_request_id(),
                      "A repeat with the same id returns the first answer");
  command->add_flag("--id-only", options->id_only, "Print the session's id and nothing else");
  command->footer("Example: S=$(lethe session create --id-only)");
  command->callback([&context, options] { context.Finish(Create(context, *options)); });
}

}  // namespace

void AddSessionCommands(CLI::App& app, Context& context) {
  CLI::App* session = app.add_subcommand("session", "Sessions: create, look at, list, delete")
                          ->require_subcommand(1);
  session->footer("Example: lethe session list");
  AddCreate(*session, context);

  CLI::App* get = session->add_subcommand("get", "Sizes, counts and options of a session");
  const auto get_request = std::make_shared<v1::GetSessionRequest>();
  get->add_option("SESSION", *get_request->mutable_session_id(), "Session id")->required();
  get->footer("Example: lethe session get $S");
  get->callback([&context, get_request] { context.Finish(Get(context, *get_request)); });

  CLI::App* list = session->add_subcommand("list", "All sessions of the server");
  list->footer("Example: lethe session list --json");
  list->callback([&context] { context.Finish(List(context)); });

  CLI::App* remove = session->add_subcommand("delete", "Delete a session with everything in it");
  const auto delete_request = std::make_shared<v1::DeleteSessionRequest>();
  remove->add_option("SESSION", *delete_request->mutable_session_id(), "Session id")->required();
  remove->add_option("--request-id", *delete_request->mutable_request_id(),
                     "A repeat with the same id returns the first answer");
  remove->footer("Example: lethe session delete $S");
  remove->callback(
      [&context, delete_request] { context.Finish(Delete(context, *delete_request)); });

  AddSessionInputsCommands(*session, context);
  AddSessionTransferCommands(*session, context);
}

}  // namespace lethe::client
