// lethe-bench: measures the model loop, Forget and recall on this machine; started by `lethe bench`.

#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"

#include "server/bench/benches.h"

int main(int argc, char** argv) {
  CLI::App app("Measures Lethe on this machine. One thread, no server.", "lethe bench");
  app.require_subcommand(1);
  app.footer("Example: lethe bench model --model models/lethe-tiny --sizes 256,2048,8192");
  lethe::bench::BenchOptions options;
  const auto add = [&](const std::string& name, const std::string& what,
                       const std::vector<int64_t>& sizes) {
    CLI::App* command = app.add_subcommand(name, what);
    options.sizes = sizes;
    command->add_option("--model", options.model_directory, "model directory")->required();
    command->add_option("--sizes", options.sizes, "tokens of history, comma-separated")
        ->delimiter(',')
        ->check(CLI::Range(int64_t{64}, int64_t{1} << 24));
    command->add_option("--runs", options.runs, "runs of each measurement, 1 to 1000")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    command->add_flag("--json", options.json, "one JSON object per line");
    return command;
  };
  const CLI::App* model = add("model", "prefill and decode, tokens per second", {256, 2048, 8192});
  const CLI::App* forget =
      add("forget", "a Forget at several distances from the head", {256, 2048, 8192});
  CLI::App* recall = app.add_subcommand(
      "recall", "asks for records, forgets them, compares with sessions never told");
  recall->add_option("--model", options.model_directory, "model directory")->required();
  recall->add_option("--cases", options.cases_path, "file of cases (train/recall_cases.py)")
      ->required();
  recall->add_flag("--json", options.json, "one JSON object");
  CLI11_PARSE(app, argc, argv);
  absl::Status status;
  if (model->parsed()) status = lethe::bench::RunModelBench(options);
  if (forget->parsed()) status = lethe::bench::RunForgetBench(options);
  if (recall->parsed()) status = lethe::bench::RunRecallBench(options);
  if (!status.ok()) {
    std::fprintf(stderr, "lethe bench: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
