// lethe doctor: checks what the promises rest on outside the program.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/option_checks.h"
#include "client/commands/report.h"
#include "client/doctor/directory_checks.h"
#include "client/doctor/finding.h"
#include "client/doctor/machine_checks.h"
#include "client/doctor/model_checks.h"

namespace lethe::client {
namespace {

struct DoctorOptions {
  std::string data;
  std::string ledger;
  std::vector<std::string> models;
  std::vector<int64_t> pids;
};

absl::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "ok";
    case Verdict::kNote:
      return "note";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kError:
      return "ERROR";
  }
  return "";
}

// An unreachable server is no error: the doctor is asked before the first start too.
Finding CheckServer(Context& context) {
  const absl::StatusOr<Client*> client = context.client();
  absl::StatusOr<v1::ListModelsResponse> models = absl::UnavailableError("");
  if (client.ok()) models = (*client)->ListModels(v1::ListModelsRequest());
  if (!models.ok()) {
    return {Verdict::kNote, "server", absl::StrCat("none answers at ", context.options().server),
            "start lethe-server, or name its address with --server"};
  }
  return {Verdict::kGood, "server",
          absl::StrCat("answers at ", context.options().server, ", ",
                       FormatCount(models->models_size(), "model")),
          ""};
}

void Append(Findings more, Findings* findings) {
  std::move(more.begin(), more.end(), std::back_inserter(*findings));
}

void Print(Context& context, const Findings& findings) {
  if (context.json()) {
    for (const Finding& finding : findings) {
      context.PrintJson({{"check", finding.check},
                         {"verdict", finding.verdict == Verdict::kError
                                         ? "error"
                                         : std::string(VerdictName(finding.verdict))},
                         {"found", finding.found},
                         {"remedy", finding.remedy}});
    }
    return;
  }
  for (const Finding& finding : findings) {
    context.out() << absl::StrCat(VerdictName(finding.verdict),
                                  std::string(9 - VerdictName(finding.verdict).size(), ' '),
                                  finding.check, ": ", OneLine(finding.found), "\n");
    if (!finding.remedy.empty()) {
      context.out() << absl::StrCat(std::string(9, ' '), "-> ", OneLine(finding.remedy), "\n");
    }
  }
  context.out() << std::flush;
}

// The exit code.
int Doctor(Context& context, const DoctorOptions& options) {
  const SystemFiles files("");
  Findings findings = CheckMachine(files);
  if (!options.data.empty()) Append(CheckDataDirectory(options.data, files), &findings);
  if (!options.ledger.empty()) Append(CheckLedger(options.ledger, options.data), &findings);
  for (const std::string& model : options.models) Append(CheckModel(model), &findings);
  for (const int64_t pid : options.pids) Append(CheckProcess(pid, files), &findings);
  findings.push_back(CheckServer(context));
  Print(context, findings);
  const bool sound = std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.verdict == Verdict::kError;
  });
  return sound ? kExitDone : kExitVerificationFailed;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, Context& context) {
  CLI::App* doctor = app.add_subcommand(
      "doctor", "Check the machine, the data directory and a running server's settings");
  const auto options = std::make_shared<DoctorOptions>();
  CLI::Option* data =
      doctor->add_option("--data", options->data, "The server's data directory, there or to be");
  doctor->add_option("--erasure-ledger", options->ledger, "The server's erasure ledger")
      ->needs(data);
  doctor->add_option("--model", options->models, "Model directory; may be given several times");
  doctor
      ->add_option("--pid", options->pids,
                   "Process id of a running lethe-server; several ids for several servers")
      ->check(WholeNumber(1, 1 << 30));
  doctor->footer(
      "Run it on the server's machine. Exit code 3 when something is an ERROR.\n"
      "deploy/OPERATIONS.md says what each finding means.\n"
      "Example: lethe doctor --data data --model models/lethe-tiny --pid $(pidof lethe-server)");
  doctor->callback([&context, options] { context.set_exit_code(Doctor(context, *options)); });
}

}  // namespace lethe::client
