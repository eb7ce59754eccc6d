// lethe models list | get | tokenize | detokenize.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands/commands.h"
#include "client/commands/files.h"
#include "client/commands/proto_json.h"
#include "client/commands/report.h"
#include "client/id_ranges.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

absl::Status List(Context& context) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const v1::ListModelsResponse response,
                         client->ListModels(v1::ListModelsRequest()));
  if (context.json()) {
    context.PrintJson(MessageToJson(response));
    return absl::OkStatus();
  }
  if (response.models().empty()) {
    context.out() << "No models: this server serves vector sessions alone (lethe vectors).\n"
                  << std::flush;
    return absl::OkStatus();
  }
  RowTable table({"model", "device", "parameters", "max tokens", "tokenizer"});
  for (const v1::Model& model : response.models()) {
    table.Add({model.name(), model.device_kind(), absl::StrCat(model.num_parameters()),
               absl::StrCat(model.max_tokens()), model.tokenizer()});
  }
  table.Print(context.out());
  return absl::OkStatus();
}

absl::Status Get(Context& context, const v1::GetModelRequest& request) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const v1::GetModelResponse response, client->GetModel(request));
  const v1::Model& model = response.model();
  if (context.json()) {
    context.PrintJson(MessageToJson(model));
    return absl::OkStatus();
  }
  context.out() << "Model " << OneLine(model.name()) << "\n";
  FieldTable table;
  table.Add("parameters", absl::StrCat(model.num_parameters()));
  table.Add("vocabulary", absl::StrCat(model.vocab_size(), " (", model.tokenizer(), ")"));
  table.Add("longest history", FormatCount(model.max_tokens(), "token"));
  table.Add("local receptive field", FormatCount(model.local_receptive_field(), "token"));
  table.Add("device", model.device_kind());
  table.Add("model digest", FormatHex(model.model_digest()));
  table.Add("numerics id", FormatHex(model.numerics_id()));
  table.Print(context.out());
  RowTable groups({"memory", "kind", "heads", "key dim", "value dim", "bounded"});
  for (const v1::MemoryGroup& group : model.memory_groups()) {
    groups.Add({group.name(), group.kind(), absl::StrCat(group.num_heads()),
                absl::StrCat(group.key_dim()), absl::StrCat(group.value_dim()),
                group.bounded() ? "yes" : "no"});
  }
  groups.Print(context.out());
  return absl::OkStatus();
}

absl::Status Tokenize(Context& context, v1::TokenizeRequest request, const std::string& path) {
  if (!path.empty()) {
    LETHE_ASSIGN_OR_RETURN(*request.mutable_text(), ReadInput(path, context.io().in));
  }
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const v1::TokenizeResponse response, client->Tokenize(request));
  if (context.json()) {
    context.PrintJson(MessageToJson(response));
  } else {
    context.out() << absl::StrJoin(response.vocab_ids(), ",") << "\n" << std::flush;
  }
  return absl::OkStatus();
}

absl::Status Detokenize(Context& context, v1::DetokenizeRequest request, const std::string& ids) {
  LETHE_ASSIGN_OR_RETURN(const std::vector<int32_t> vocab_ids, ParseVocabIds("IDS", ids));
  request.mutable_input()->mutable_vocab_ids()->Add(vocab_ids.begin(), vocab_ids.end());
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const v1::DetokenizeResponse response, client->Detokenize(request));
  if (context.json()) {
    Json object = MessageToJson(response);
    object["utf8"] = response.text();
    context.PrintJson(object);
  } else if (context.io().out_is_terminal) {
    context.out() << SafeForTerminal(response.text()) << "\n" << std::flush;
  } else {
    context.out() << response.text() << std::flush;
  }
  return absl::OkStatus();
}

void AddTokenizers(CLI::App& models, Context& context) {
  CLI::App* tokenize = models.add_subcommand("tokenize", "Vocabulary ids of a text");
  const auto request = std::make_shared<v1::TokenizeRequest>();
  const auto path = std::make_shared<std::string>();
  CLI::Option_group* source = tokenize->add_option_group("source", "Exactly one of");
  source->add_option("FILE", *path, "File, - for standard input");
  source->add_option("--text", *request->mutable_text(), "Text");
  source->require_option(1);
  tokenize->add_option("--model", *request->mutable_model(), "Model (default: the only one)");
  tokenize->footer("Example: lethe models tokenize --text 'Patient'");
  tokenize->callback(
      [&context, request, path] { context.Finish(Tokenize(context, *request, *path)); });

  CLI::App* detokenize = models.add_subcommand("detokenize", "Text of vocabulary ids");
  const auto input = std::make_shared<v1::DetokenizeRequest>();
  const auto ids = std::make_shared<std::string>();
  detokenize->add_option("IDS", *ids, "Vocabulary ids: 72,101,108")->required();
  detokenize->add_option("--model", *input->mutable_model(), "Model (default: the only one)");
  detokenize->footer("Example: lethe models detokenize 80,97,116");
  detokenize->callback(
      [&context, input, ids] { context.Finish(Detokenize(context, *input, *ids)); });
}

}  // namespace

void AddModelsCommands(CLI::App& app, Context& context) {
  CLI::App* models =
      app.add_subcommand("models", "Models of the server; their tokenizers")->require_subcommand(1);
  models->footer("Example: lethe models list");

  CLI::App* list = models->add_subcommand("list", "All models");
  list->footer("Example: lethe models list");
  list->callback([&context] { context.Finish(List(context)); });

  CLI::App* get = models->add_subcommand("get", "One model with its memories");
  const auto request = std::make_shared<v1::GetModelRequest>();
  get->add_option("NAME", *request->mutable_name(), "Model (default: the only one)");
  get->footer("Example: lethe models get lethe-tiny");
  get->callback([&context, request] { context.Finish(Get(context, *request)); });

  AddTokenizers(*models, context);
}

}  // namespace lethe::client
