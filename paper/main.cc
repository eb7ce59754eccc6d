// lethe-paper: repeats the papers' experiments and prints them beside the papers' numbers; started
// by `lethe paper`.

#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "paper/experiments.h"

namespace {

using lethe::paper::Experiment;
using lethe::paper::Experiments;
using lethe::paper::Options;
using lethe::paper::Report;

struct Output {
  bool json = false;
  std::string svg;
};

// As the program lethe: 2 for wrong usage, with the word that stands in an experiment's place.
int ExitCode(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  const std::vector<std::string> rest = app.remaining();
  if (app.get_subcommands().empty() && !rest.empty() && rest[0][0] != '-') {
    std::fprintf(stderr, "lethe paper: no experiment '%s' (lethe paper --list names them)\n",
                 rest[0].c_str());
  } else {
    std::fprintf(stderr, "lethe paper: %s (try lethe paper --help)\n", error.what());
  }
  return 2;
}

// 2 also for data or a model that cannot be used.
int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "lethe paper: %s\n", std::string(status.message()).c_str());
  return absl::IsNotFound(status) || absl::IsInvalidArgument(status) || absl::IsDataLoss(status)
             ? 2
             : 1;
}

void PrintList(bool json) {
  std::string names;
  for (const Experiment& experiment : Experiments()) {
    if (json) {
      absl::StrAppend(&names, names.empty() ? "" : ",", "\"", experiment.name, "\"");
    } else {
      std::printf("%-26s %s\n", experiment.name, experiment.shows);
    }
  }
  if (json) std::printf("{\"experiments\":[%s]}\n", names.c_str());
}

absl::Status WriteSvg(const Report& report, const std::string& path) {
  if (report.charts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--svg: ", report.name, " draws nothing"));
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << lethe::paper::DrawSvg(report.charts);
  file.close();
  if (!file) return absl::InvalidArgumentError(absl::StrCat("--svg: cannot write ", path));
  return absl::OkStatus();
}

absl::Status RunOne(const Experiment& experiment, const Options& options, const Output& output) {
  LETHE_ASSIGN_OR_RETURN(Report report, experiment.run(options));
  report.name = experiment.name;
  report.shows = absl::StrCat(experiment.shows, ".");
  std::printf("%s", (output.json ? AsJson(report) + "\n" : AsText(report)).c_str());
  if (std::fflush(stdout) != 0) return absl::InvalidArgumentError("cannot write standard output");
  if (!output.svg.empty()) LETHE_RETURN_IF_ERROR(WriteSvg(report, output.svg));
  if (report.failures.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(experiment.name, ": what Lethe claims did not hold"));
}

// `status` is set by the callback of the experiment that the line names.
void AddExperiment(const Experiment& experiment, CLI::App* app, absl::Status* status) {
  CLI::App* command = app->add_subcommand(experiment.name, experiment.shows);
  const auto options = std::make_shared<Options>();
  const auto output = std::make_shared<Output>();
  options->trials = experiment.trials;
  command->add_option("--seed", options->seed, "seed; 0 is the paper's")->capture_default_str();
  if (experiment.needs.trials) {
    command->add_option("--trials", options->trials, "trials, 1 to 100000")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
  }
  if (experiment.needs.data) {
    command->add_option(
        "--data", options->data,
        "PhysioNet/CinC Challenge 2012 set A: set-a as .tar, .tar.gz or .tar.xz, or its unpacked "
        "directory");
  }
  if (experiment.needs.model) {
    command->add_option("--model", options->model, "model directory (models/lethe-tiny if there)");
    command->add_option("--text", options->text,
                        "text whose keys the model makes (deploy/texts/2-morning.txt if there)");
  }
  command->add_flag("--json", output->json, "one JSON object");
  command->add_option("--svg", output->svg, "file to draw a plot into");
  command->callback(
      [&experiment, options, output, status] { *status = RunOne(experiment, *options, *output); });
}

int Run(int argc, char** argv) {
  CLI::App app("Repeats the papers' experiments and prints them beside the papers' numbers.",
               "lethe paper");
  app.require_subcommand(0, 1);
  app.footer("Example: lethe paper sv-deletion-audit --data challenge2012-set-a.tar.xz");
  bool list = false;
  bool json = false;
  app.add_flag("--list", list, "the experiments' names");
  app.add_flag("--json", json, "with --list: one JSON object");
  absl::Status status;
  for (const Experiment& experiment : Experiments()) AddExperiment(experiment, &app, &status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return ExitCode(app, error);
  }
  if (!app.get_subcommands().empty()) return ExitCode(status);
  if (!list) {
    std::fputs("lethe paper: name an experiment (lethe paper --list)\n", stderr);
    return 2;
  }
  PrintList(json);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {  // of a library; our own errors are statuses
    std::fprintf(stderr, "lethe paper: %s\n", error.what());
    return 1;
  }
}
