// lethe session inputs | digest.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/files.h"
#include "client/commands/paging.h"
#include "client/commands/proto_json.h"
#include "client/commands/report.h"
#include "client/commands/vector_calls.h"
#include "client/id_ranges.h"
#include "client/inputs_file.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

// Bytes of one run that the table shows.
constexpr size_t kShownBytes = 60;

struct InputsOptions {
  InputQuery query;
  std::string export_path;
};

// Neighbouring inputs that differ in nothing but their id, rank and content.
struct Run {
  v1::TokenRange ids;
  v1::Input first;
  int64_t last_rank = 0;
  std::string text;
};

std::vector<Run> JoinRuns(const std::vector<v1::Input>& inputs) {
  std::vector<Run> runs;
  for (const v1::Input& input : inputs) {
    if (!runs.empty()) {
      Run& run = runs.back();
      if (run.ids.end() == input.token_id() && run.last_rank + 1 == input.rank() &&
          run.first.kind() == input.kind() && run.first.subject() == input.subject() &&
          run.first.derived() == input.derived()) {
        run.ids.set_end(input.token_id() + 1);
        run.last_rank = input.rank();
        run.text += input.text();
        continue;
      }
    }
    Run run{.ids = {}, .first = input, .last_rank = input.rank(), .text = input.text()};
    run.ids.set_first(input.token_id());
    run.ids.set_end(input.token_id() + 1);
    runs.push_back(std::move(run));
  }
  return runs;
}

void PrintRuns(Context& context, const std::vector<Run>& runs, bool content) {
  std::vector<std::string> header = {"token_ids", "ranks", "kind", "subject", "derived"};
  if (content) {
    header.push_back("text");
  }
  RowTable table(header);
  for (const Run& run : runs) {
    v1::TokenRange ranks;
    ranks.set_first(static_cast<uint64_t>(run.first.rank()));
    ranks.set_end(static_cast<uint64_t>(run.last_rank) + 1);
    std::vector<std::string> row = {FormatRange(run.ids), FormatRange(ranks),
                                    EnumName(v1::InputKind_descriptor(), run.first.kind()),
                                    run.first.subject(), run.first.derived() ? "yes" : "no"};
    if (content) {
      row.push_back(run.text.size() <= kShownBytes
                        ? Quoted(run.text)
                        : absl::StrCat(Quoted(run.text.substr(0, kShownBytes)), "..."));
    }
    table.Add(std::move(row));
  }
  table.Print(context.out());
}

absl::StatusOr<InputsFile> FetchFile(Client& client, const v1::Session& session) {
  InputsFile file{
      .model = session.model(), .memory_options = session.memory_options(), .vocab_ids = {}};
  if (session.has_vector_options()) {
    file.vectors = NoVectors(session.vector_options());
    const absl::Status listed =
        ListAllVectors(client, session.session_id(), [&file](const v1::ListVectorsResponse& page) {
          for (const v1::VectorRow& row : page.rows()) {
            LETHE_RETURN_IF_ERROR(AddRow(row, &file.vectors->rows));
          }
          return absl::OkStatus();
        });
    LETHE_RETURN_IF_ERROR(listed);
    return file;
  }
  LETHE_ASSIGN_OR_RETURN(
      const std::vector<v1::Input> inputs,
      ListAllInputs(client,
                    {.session_id = session.session_id(), .subject = "", .include_content = true}));
  for (const v1::Input& input : inputs) {
    file.vocab_ids.push_back(input.vocab_id());
  }
  return file;
}

absl::Status Export(Context& context, Client& client, const v1::Session& session,
                    const std::string& path) {
  LETHE_ASSIGN_OR_RETURN(const InputsFile file, FetchFile(client, session));
  LETHE_RETURN_IF_ERROR(WriteFile(path, WriteInputsFile(file)));
  if (context.json()) {
    context.PrintJson(Json{{"file", path}, {"num_inputs", file.num_inputs()}});
  } else {
    context.out() << "Wrote " << FormatCount(static_cast<int64_t>(file.num_inputs()), "input")
                  << " to " << path << ". The file is content: keep it as safe as the session.\n"
                  << std::flush;
  }
  return absl::OkStatus();
}

absl::Status Inputs(Context& context, const InputsOptions& options) {
  const bool exporting = !options.export_path.empty();
  if (exporting && !options.query.subject.empty()) {
    return absl::InvalidArgumentError("--export writes all inputs and takes no --subject");
  }
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::GetSessionRequest request;
  request.set_session_id(options.query.session_id);
  LETHE_ASSIGN_OR_RETURN(const v1::GetSessionResponse response, client->GetSession(request));
  const v1::Session& session = response.session();
  if (exporting) {
    return Export(context, *client, session, options.export_path);
  }
  LETHE_ASSIGN_OR_RETURN(const std::vector<v1::Input> inputs,
                         ListAllInputs(*client, options.query));
  if (context.json()) {
    Json list = Json::array();
    for (const v1::Input& input : inputs) {
      list.push_back(MessageToJson(input));
    }
    context.PrintJson(Json{{"inputs", list}, {"num_inputs", inputs.size()}});
    return absl::OkStatus();
  }
  if (inputs.empty()) {
    context.out() << "No inputs.\n" << std::flush;
    return absl::OkStatus();
  }
  const bool has_text = !session.has_vector_options();
  PrintRuns(context, JoinRuns(inputs), options.query.include_content && has_text);
  context.out() << FormatCount(static_cast<int64_t>(inputs.size()), "input")
                << (has_text ? "." : ". Keys and values: lethe vectors list.") << "\n"
                << std::flush;
  return absl::OkStatus();
}

absl::Status Digest(Context& context, const v1::GetStateDigestRequest& request,
                    const std::string& path) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const v1::GetStateDigestResponse response,
                         client->GetStateDigest(request));
  if (!path.empty()) {
    LETHE_RETURN_IF_ERROR(WriteFile(path, MessageToJson(response.digest()).dump() + "\n"));
  }
  if (context.json()) {
    context.PrintJson(MessageToJson(response));
    return absl::OkStatus();
  }
  context.out() << FormatHex(response.digest().sha256()) << "\n";
  for (const v1::StateDigestPart& part : response.digest().parts()) {
    context.out() << "  " << FormatHex(part.sha256()) << "  " << OneLine(part.name()) << "\n";
  }
  context.out() << std::flush;
  return absl::OkStatus();
}

void AddInputs(CLI::App& session, Context& context) {
  CLI::App* command = session.add_subcommand(
      "inputs",
      "What the session holds: token_ids, ranks, kinds, subjects; here you find what to forget");
  const auto options = std::make_shared<InputsOptions>();
  command->add_option("SESSION", options->query.session_id, "Session id")->required();
  command->add_option("--subject", options->query.subject, "Only inputs with this subject label");
  command->add_flag("--content", options->query.include_content, "Show the inputs' text too");
  command->add_option("--export", options->export_path,
                      "Write all inputs to this file, for lethe replay --inputs");
  command->footer("Example: lethe session inputs $S --subject patient-17 --content");
  command->callback([&context, options] { context.Finish(Inputs(context, *options)); });
}

}  // namespace

void AddSessionInputsCommands(CLI::App& session, Context& context) {
  AddInputs(session, context);

  CLI::App* digest =
      session.add_subcommand("digest", "The digest of the session's whole state (P1)");
  const auto request = std::make_shared<v1::GetStateDigestRequest>();
  const auto path = std::make_shared<std::string>();
  digest->add_option("SESSION", *request->mutable_session_id(), "Session id")->required();
  CLI::Option* parts = digest->add_flag_callback(
      "--parts", [request] { request->set_include_parts(true); }, "Show the digest's parts too");
  digest->add_option("--out", *path, "Also write digest and parts to this file, for lethe digest")
      ->needs(parts);
  digest->footer("Example: lethe session digest $S --parts --out before.json");
  digest->callback([&context, request, path] { context.Finish(Digest(context, *request, *path)); });
}

}  // namespace lethe::client
