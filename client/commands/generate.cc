// lethe generate.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/commands.h"
#include "client/commands/files.h"
#include "client/commands/generation_printer.h"
#include "client/commands/generation_retries.h"
#include "client/commands/option_checks.h"
#include "client/id_ranges.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

struct GenerateOptions {
  v1::GenerateRequest request;
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;
  std::optional<std::string> vocab_ids;
  std::optional<int32_t> max_tokens;
  std::vector<std::string> stop;
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<uint64_t> seed;
  std::optional<int32_t> top_logprobs;
  std::optional<uint64_t> last_token_id;
  bool quiet = false;
};

absl::Status FillPrompt(Context& context, const GenerateOptions& options, v1::Content* prompt) {
  if (options.prompt) {
    prompt->set_text(*options.prompt);
  } else if (options.prompt_file) {
    LETHE_ASSIGN_OR_RETURN(*prompt->mutable_text(),
                           ReadInput(*options.prompt_file, context.io().in));
  } else {
    LETHE_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                           ParseVocabIds("--vocab-ids", *options.vocab_ids));
    prompt->mutable_vocab_ids()->mutable_vocab_ids()->Add(ids.begin(), ids.end());
  }
  return absl::OkStatus();
}

void FillSampling(const GenerateOptions& options, v1::SamplingParams* sampling) {
  if (options.temperature) {
    sampling->set_temperature(*options.temperature);
  }
  if (options.top_k) {
    sampling->set_top_k(*options.top_k);
  }
  if (options.top_p) {
    sampling->set_top_p(*options.top_p);
  }
  if (options.min_p) {
    sampling->set_min_p(*options.min_p);
  }
  if (options.repetition_penalty) {
    sampling->set_repetition_penalty(*options.repetition_penalty);
  }
  if (options.seed) {
    sampling->set_seed(*options.seed);
  }
}

void FillOutput(const GenerateOptions& options, v1::OutputOptions* output) {
  if (options.max_tokens) {
    output->set_max_tokens(*options.max_tokens);
  }
  for (const std::string& stop : options.stop) {
    output->add_stop(stop);
  }
  if (options.top_logprobs) {
    output->set_top_logprobs(*options.top_logprobs);
  }
}

absl::Status Generate(Context& context, GenerateOptions& options) {
  v1::GenerateRequest& request = options.request;
  if (options.prompt || options.prompt_file || options.vocab_ids) {
    LETHE_RETURN_IF_ERROR(FillPrompt(context, options, request.mutable_prompt()));
  }
  FillSampling(options, request.mutable_sampling());
  FillOutput(options, request.mutable_output());
  if (options.last_token_id) {
    request.set_last_token_id(*options.last_token_id);
  }
  GenerationPrinter printer(context, options.quiet);
  return GenerateToEnd(context, request, printer);
}

void AddSampling(CLI::App& command, GenerateOptions& options) {
  command.add_option("--temperature", options.temperature, "0 = greedy (default), up to 10")
      ->check(Number("from 0 to 10"));
  command.add_option("--top-k", options.top_k, "Keep the k most likely; 0 = off (default)")
      ->check(Int32FromZero("the size of the model's vocabulary"));
  command.add_option("--top-p", options.top_p, "Keep the smallest set of this probability")
      ->check(Number("above 0, at most 1"));
  command
      .add_option("--min-p", options.min_p,
                  "Drop what is less likely than this times the most likely")
      ->check(Number("from 0 to below 1"));
  command
      .add_option("--repetition-penalty", options.repetition_penalty,
                  "Above 1 makes tokens of the history less likely")
      ->check(Number("above 0, at most 10"));
  command.add_option("--seed", options.seed, "Same seed, same history: same text")
      ->check(WholeNumber());
}

void AddOutput(CLI::App& command, GenerateOptions& options) {
  command.add_option("--max-tokens", options.max_tokens, "Most tokens to write (default 256)")
      ->check(Int32FromZero("what the session leaves of the model's longest history"));
  command.add_option("--stop", options.stop, "Stop before this text; may be given up to 16 times")
      ->allow_extra_args(false);
  command
      .add_option("--top-logprobs", options.top_logprobs,
                  "Also show this many most likely tokens with their log-probabilities")
      ->check(WholeNumber(0, 20));
  command.add_flag_callback(
      "--ignore-end-of-text",
      [&options] { options.request.mutable_output()->set_ignore_end_of_text(true); },
      "Go on at the model's end of text");
  command.add_flag("--quiet", options.quiet, "No summary line on the error stream");
}

}  // namespace

void AddGenerateCommand(CLI::App& app, Context& context) {
  CLI::App* command =
      app.add_subcommand("generate", "Stream text that the model writes from prompt and memory");
  const auto options = std::make_shared<GenerateOptions>();
  command->add_option("SESSION", *options->request.mutable_session_id(), "Session id")->required();
  CLI::Option_group* prompt = command->add_option_group("prompt", "At most one of");
  prompt->add_option("--prompt", options->prompt, "Prompt text");
  prompt->add_option("--prompt-file", options->prompt_file,
                     "File with the prompt, - for standard input");
  prompt->add_option("--vocab-ids", options->vocab_ids, "Prompt as vocabulary ids: 72,101,108");
  prompt->require_option(0, 1);
  command->add_option("--subject", *options->request.mutable_subject(),
                      "Subject label of the prompt and of the answer");
  command->add_flag_callback(
      "--no-remember", [options] { options->request.set_remember(false); },
      "Answer from a copy that is dropped; prompt and answer never enter the history");
  AddSampling(*command, *options);
  AddOutput(*command, *options);
  CLI::Option* request_id = command->add_option(
      "--request-id", *options->request.mutable_request_id(),
      "A repeat with the same id is not run twice; a stream that breaks goes on");
  command
      ->add_option("--last-token-id", options->last_token_id,
                   "With the same line as before: go on behind this token; 0 = from the start")
      ->check(WholeNumber())
      ->needs(request_id);
  command->footer(
      "Example: lethe generate $S --prompt '[Query] Patient Kalo-17 takes' --stop . --no-remember");
  command->callback([&context, options] { context.Finish(Generate(context, *options)); });
}

}  // namespace lethe::client
