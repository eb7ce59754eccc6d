// lethe-bench: measures the model loop, Forget and recall on this machine; started by `lethe bench`.

#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"

#include "server/bench/benches.h"
#include "server/bench/kernel_bench.h"
#include "server/bench/store_bench.h"
#include "server/process_setup.h"

namespace {

// As the program lethe: 2 for wrong usage, with the word that stands in a command's place.
int ExitCode(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  const std::vector<std::string> rest = app.remaining();
  if (app.get_subcommands().empty() && !rest.empty() && rest[0][0] != '-') {
    std::fprintf(stderr,
                 "lethe bench: unknown command '%s'; there are: model, forget, server, recall, "
                 "svdd, store, kernels",
                 rest[0].c_str());
  } else {
    std::fprintf(stderr, "lethe bench: %s", error.what());
  }
  std::fputs(" (try lethe bench --help)\n", stderr);
  return 2;
}

// 2 also for a model or a file of cases that cannot be used.
int ExitCode(const absl::Status& status) {
  std::fprintf(stderr, "lethe bench: %s\n", std::string(status.message()).c_str());
  return absl::IsNotFound(status) || absl::IsInvalidArgument(status) || absl::IsDataLoss(status)
             ? 2
             : 1;
}

void AddStoreBench(CLI::App* app, lethe::bench::StoreBenchOptions* options, absl::Status* status) {
  CLI::App* store = app->add_subcommand(
      "store", "sessions on disk: appends, Forgets, bytes, and a start after kill -9");
  store->add_option("--model", options->model_directory,
                    "sessions of this model (default: vector sessions)");
  store->add_option("--data", options->directory,
                    "an empty directory for the files, which stay (default: a temporary one)");
  store->add_option("--sessions", options->sessions, "sessions in the data directory")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  store->add_option("--inputs", options->inputs, "inputs of a session, at least 8")
      ->check(CLI::Range(int64_t{8}, int64_t{1} << 16))
      ->capture_default_str();
  store->add_option("--forgets", options->forgets, "Forgets measured, one a session")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  store->add_option("--threads", options->threads, "callers at once")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  store->add_option("--runs", options->runs, "starts, at most 6")
      ->check(CLI::Range(1, 6))
      ->capture_default_str();
  store->add_flag("--json", options->json, "one JSON object per line");
  store->callback([options, status] { *status = lethe::bench::RunStoreBench(*options); });
}

using lethe::bench::BenchOptions;
using Bench = absl::Status (*)(const BenchOptions&);

// A bench of the model loop: its command, and options that the command keeps alive.
std::pair<CLI::App*, std::shared_ptr<BenchOptions>> AddModelBench(
    CLI::App* app, const std::string& name, const std::string& what, Bench bench,
    const std::vector<int64_t>& sizes, absl::Status* status) {
  CLI::App* command = app->add_subcommand(name, what);
  auto options = std::make_shared<BenchOptions>();
  options->sizes = sizes;
  command->add_option("--model", options->model_directory, "model directory")->required();
  command->add_option("--sizes", options->sizes, "tokens of history, comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{64}, int64_t{1} << 24))
      ->capture_default_str();
  command->add_option("--runs", options->runs, "runs of each measurement, 1 to 1000")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--json", options->json, "one JSON object per line");
  command->callback([status, bench, options] { *status = bench(*options); });
  return {command, options};
}

void AddModelBenches(CLI::App* app, absl::Status* status) {
  AddModelBench(app, "model", "prefill and decode, tokens per second", lethe::bench::RunModelBench,
                {256, 2048, 8192}, status);
  const auto [forget, forget_options] = AddModelBench(
      app, "forget", "a Forget on both ways: one token at several distances, and many",
      lethe::bench::RunForgetBench, {1024, 8192}, status);
  forget
      ->add_option("--stored-input-mib", forget_options->stored_input_mib,
                   "as of lethe-server: what a session may store for a replay")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  AddModelBench(app, "server",
                "decode through gRPC against the bare loop, sessions in memory and on disk",
                lethe::bench::RunServerBench, {2048}, status);
}

void AddStreamBench(CLI::App* app, absl::Status* status) {
  CLI::App* streams = app->add_subcommand(
      "streams", "many streams at once on a device, through gRPC and in a bare batched loop");
  auto options = std::make_shared<lethe::bench::StreamBenchOptions>();
  streams->add_option("--device", options->device, "as of lethe-server")
      ->check(CLI::IsMember({"cpu-batched", "cuda"}))
      ->capture_default_str();
  streams->add_option("--model", options->model_directory, "model directory [built-in shapes]");
  streams->add_option("--shape", options->shape, "built-in shapes whose names hold this text")
      ->capture_default_str();
  streams->add_option("--streams", options->streams, "streams at once, comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  streams->add_option("--tokens", options->num_tokens, "tokens that each stream draws")
      ->check(CLI::Range(int64_t{16}, int64_t{8192}))
      ->capture_default_str();
  streams->add_flag("--json", options->json, "one JSON object per line");
  streams->callback([options, status] { *status = lethe::bench::RunStreamBench(*options); });
}

void AddRecallBench(CLI::App* app, BenchOptions* options, absl::Status* status) {
  CLI::App* recall = app->add_subcommand(
      "recall", "asks for records, forgets them, compares with sessions never told");
  recall->add_option("--model", options->model_directory, "model directory")->required();
  recall->add_option("--cases", options->cases_path, "file of cases (train/recall_cases.py)")
      ->required();
  recall->add_flag("--json", options->json, "one JSON object");
  recall->callback([options, status] { *status = lethe::bench::RunRecallBench(*options); });
}

void AddSvddBench(CLI::App* app, BenchOptions* options, absl::Status* status) {
  CLI::App* solver = app->add_subcommand(
      "svdd", "the exact one-class solver: forget, append, load, beside libsvm");
  options->sizes = {256, 1024, 4096};
  options->runs = 100;
  solver->add_option("--sizes", options->sizes, "keys, comma-separated")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{32}, int64_t{1} << 20))
      ->capture_default_str();
  solver->add_option("--runs", options->runs, "operations of each kind, 1 to 100000")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  solver->add_flag("--json", options->json, "one JSON object per line");
  solver->callback([options, status] { *status = lethe::bench::RunSvddBench(*options); });
}

void AddKernelBench(CLI::App* app, lethe::bench::KernelBenchOptions* options,
                    absl::Status* status) {
  CLI::App* kernels = app->add_subcommand(
      "kernels", "a session's kernels on a device, one by one, beside other people's");
  kernels->add_option("--device", options->device, "cuda, or cpu for the portable forms")
      ->transform(CLI::CheckedTransformer(std::map<std::string, lethe::DeviceKind>{
          {"cuda", lethe::DeviceKind::kCuda}, {"cpu", lethe::DeviceKind::kCpu}}))
      ->default_str("cuda");
  kernels->add_option("--filter", options->filter,
                      "take the cases whose kernel and shape hold this text");
  kernels->add_option("--runs", options->runs, "runs of each case, 1 to 1000")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  kernels->add_flag(
      "--peers,!--no-peers", options->with_peers,
      "time other kernels with python3 where it has PyTorch, fla or palimpsa (default)");
  kernels->add_flag("--json", options->json, "one JSON object per line");
  kernels->callback([options, status] { *status = lethe::bench::RunKernelBench(*options); });
}

int Run(int argc, char** argv) {
  CLI::App app("Measures Lethe on this machine, one compute thread.", "lethe bench");
  app.require_subcommand(1);
  app.footer("Example: lethe bench model --model models/lethe-tiny --sizes 256,2048,8192");
  absl::Status status;
  AddModelBenches(&app, &status);
  AddStreamBench(&app, &status);
  BenchOptions recall_options;
  AddRecallBench(&app, &recall_options, &status);
  BenchOptions solver_options;
  AddSvddBench(&app, &solver_options, &status);
  lethe::bench::StoreBenchOptions store_options;
  AddStoreBench(&app, &store_options, &status);
  lethe::bench::KernelBenchOptions kernel_options;
  AddKernelBench(&app, &kernel_options, &status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ExitCode(app, error);
  }
  return status.ok() ? 0 : ExitCode(status);
}

}  // namespace

int main(int argc, char** argv) {
  lethe::KeepFreedMemory(1);  // as the server does
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {  // of a library; our own errors are statuses
    std::fprintf(stderr, "lethe bench: %s\n", error.what());
    return 1;
  }
}
