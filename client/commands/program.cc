#include "client/commands/program.h"

#include <algorithm>

#include "CLI/CLI.hpp"
#include "client/commands/commands.h"
#include "client/commands/connection.h"
#include "client/commands/option_checks.h"
#include "client/commands/usage_text.h"

namespace lethe::client {
namespace {

constexpr char kFooter[] =
    "\nExample, a whole life:\n"
    "  S=$(lethe session create --id-only)\n"
    "  lethe append $S deploy/texts/1-night.txt\n"
    "  lethe append $S --text '[Record] Patient Kalo-17 takes zelvim.' --subject patient-17\n"
    "  lethe generate $S --prompt '[Query] Patient Kalo-17 takes' --stop . --no-remember\n"
    "  lethe forget $S --subject patient-17 --derived forget\n"
    "  lethe certify $S --out certificate --bundle\n"
    "  lethe verify certificate --trust trust.txt\n"
    "  lethe replay $S --certificate certificate --model models/lethe-tiny\n"
    "\nGlobal options may stand anywhere on the line. Exit codes: 0 done, 1 refused by the server\n"
    "or no server, 2 wrong usage, 3 verification failed. docs/cli.md has every command.";

void AddGlobalOptions(CLI::App& app, GlobalOptions& options) {
  AddConnectionOptions(app, options);
  app.add_option("--timeout", options.timeout_s, "Seconds that a call may take")
      ->check(Number("from 0.001 to 1e9", 0.001, 1e9))
      ->capture_default_str();
  app.add_flag("--json", options.json,
               "One JSON object per result; JSON lines from commands that stream");
}

void AddCommands(CLI::App& app, Context& context) {
  AddSessionCommands(app, context);
  AddGenerateCommand(app, context);
  AddAppendCommand(app, context);
  AddForgetCommand(app, context);
  AddForgetSubjectCommand(app, context);
  AddJobsCommands(app, context);
  AddCertifyCommands(app, context);
  AddVerifyCommand(app, context);
  AddReplayCommand(app, context);
  AddPartitionCommand(app, context);
  AddVectorsCommands(app, context);
  AddSigmaCommand(app, context);
  AddAuditCommands(app, context);
  AddModelsCommands(app, context);
  AddDigestCommand(app, context);
  AddDoctorCommand(app, context);
  AddTokenCommands(app, context);
  AddCompletionCommand(app, context);
  AddBenchCommand(app, context);
  AddPaperCommand(app, context);
}

}  // namespace

int RunProgram(const std::vector<std::string>& arguments, const Io& io) {
  Context context(io);
  CLI::App app("lethe: a language model with a memory per session that can prove it forgot",
               "lethe");
  app.fallthrough();
  app.require_subcommand(1);
  app.footer(kFooter);
  app.set_version_flag("--version", "lethe " LETHE_VERSION);
  AddGlobalOptions(app, context.options());
  AddCommands(app, context);
  CheckOptionTexts(app);

  std::vector<std::string> reversed = SplitEmptyValues(app, arguments);
  std::reverse(reversed.begin(), reversed.end());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      app.exit(error, io.out, io.err);  // --help, --version
    } else {
      context.Finish(absl::InvalidArgumentError(UsageText(error, app)));
    }
  }
  io.out << std::flush;
  // A result that nobody got, as on a full disk, is no success.
  if (context.exit_code() == kExitDone && !io.out.good()) context.Finish(OutputError());
  return context.exit_code();
}

}  // namespace lethe::client
