// lethe doctor: checks what the promises rest on outside the program.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/commands/commands.h"
#include "client/commands/option_checks.h"
#include "client/commands/report.h"
#include "client/commands/sibling.h"
#include "client/doctor/directory_checks.h"
#include "client/doctor/finding.h"
#include "client/doctor/key_checks.h"
#include "client/doctor/machine_checks.h"
#include "client/doctor/model_checks.h"
#include "client/doctor/port_checks.h"
#include "client/doctor/sync_checks.h"
#include "grpcpp/grpcpp.h"
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lethe::client {
namespace {

struct DoctorOptions {
  std::string data;
  std::string ledger;
  std::vector<std::string> models;
  std::vector<int64_t> pids;
  std::vector<std::string> listen;
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

constexpr char kVersion[] = "lethe " LETHE_VERSION;
// The first gRPC without CVE-2023-1428: a header of 8 KiB ends the process.
constexpr int kSoundGrpcMinor = 53;

// The version line of the lethe-server beside this program; "" where there is none.
std::string ServerVersion() {
  const absl::StatusOr<std::string> program = SiblingProgram("lethe-server");
  int ends[2];
  if (!program.ok() || pipe(ends) != 0) return "";
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execl(program->c_str(), program->c_str(), "--version", nullptr);
    _exit(127);
  }
  close(ends[1]);
  std::string line;
  char c = 0;
  while (read(ends[0], &c, 1) == 1 && c != '\n') line.push_back(c);
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return line;
}

Findings CheckVersions() {
  const std::string server = ServerVersion();
  utsname kernel{};
  uname(&kernel);
  const std::string all = absl::StrCat(kVersion, server.empty() ? "" : ", ", server, ", gRPC ",
                                       grpc::Version(), ", Linux ", kernel.release);
  Findings findings;
  if (!server.empty() && server != "lethe-server " LETHE_VERSION) {
    findings.push_back({Verdict::kWarning, "versions", all, "install both from one build"});
  } else {
    findings.push_back({Verdict::kGood, "versions", all, ""});
  }
  const std::vector<std::string> parts = absl::StrSplit(grpc::Version(), '.');
  int minor = 0;
  if (parts.size() > 1 && parts[0] == "1" && absl::SimpleAtoi(parts[1], &minor) &&
      minor < kSoundGrpcMinor) {
    findings.push_back(
        {Verdict::kNote, "edge",
         absl::StrCat("gRPC ", grpc::Version(),
                      " has public faults in its HTTP/2 (CVE-2023-1428, CVE-2023-33953)"),
         "let nobody beyond this machine reach the server but through a proxy that "
         "ends HTTP/2"});
  }
  return findings;
}

// The address that the server is to listen on, where it does not yet.
Findings CheckPorts(Context& context, const DoctorOptions& options, bool server_answers) {
  const std::string& server = context.options().server;
  Findings findings;
  for (const std::string& address : options.listen) {
    if (!server_answers || address != server) findings.push_back(CheckPort(address));
  }
  const bool is_local = absl::StartsWith(server, "127.") ||
                        absl::StartsWith(server, "localhost:") ||
                        absl::StartsWith(server, "[::1]:");
  if (options.listen.empty() && !server_answers && is_local) findings.push_back(CheckPort(server));
  return findings;
}

// An unreachable server is no error: the doctor is asked before the first start too.
Finding CheckServer(Context& context) {
  const absl::StatusOr<Client*> client = context.client();
  absl::StatusOr<v1::ListModelsResponse> models = absl::UnavailableError("");
  if (client.ok()) models = (*client)->ListModels(v1::ListModelsRequest());
  const bool refused =
      absl::IsUnauthenticated(models.status()) || absl::IsPermissionDenied(models.status());
  if (refused) {
    return {Verdict::kGood, "server",
            absl::StrCat("answers at ", context.options().server, ", and wants other credentials"),
            ""};
  }
  if (!models.ok()) {
    return {Verdict::kNote, "server", absl::StrCat("none answers at ", context.options().server),
            "start lethe-server, or name its address with --server (with TLS: --tls-ca)"};
  }
  return {Verdict::kGood, "server",
          absl::StrCat("answers at ", context.options().server, ", ",
                       FormatCount(models->models_size(), "model")),
          ""};
}

Color VerdictColor(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
    case Verdict::kNote:
      return Color::kGreen;
    case Verdict::kWarning:
      return Color::kYellow;
    case Verdict::kError:
      return Color::kRed;
  }
  return Color::kRed;
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
    context.out() << absl::StrCat(
        context.Paint(VerdictColor(finding.verdict), VerdictName(finding.verdict)),
        std::string(9 - VerdictName(finding.verdict).size(), ' '), finding.check, ": ",
        OneLine(finding.found), "\n");
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
  Append(CheckVersions(), &findings);
  if (!options.data.empty()) {
    Append(CheckDataDirectory(options.data, files), &findings);
    Append(CheckSyncSpeed(options.data), &findings);
    Append(CheckKeys(options.data), &findings);
  }
  if (!options.ledger.empty()) Append(CheckLedger(options.ledger, options.data), &findings);
  for (const std::string& model : options.models) Append(CheckModel(model), &findings);
  for (const int64_t pid : options.pids) Append(CheckProcess(pid, files), &findings);
  findings.push_back(CheckServer(context));
  const bool server_answers = findings.back().verdict == Verdict::kGood;
  Append(CheckPorts(context, options, server_answers), &findings);
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
  doctor
      ->add_option("--listen", options->listen,
                   "HOST:PORT that lethe-server is to listen on; may be given several times "
                   "(default: --server on loopback, where none answers)")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return CheckAddress("", text).ok()
                       ? ""
                       : "want HOST:PORT with a port of 1 to 65535, like 127.0.0.1:7070";
          },
          ""))
      ->type_name("ADDRESS");
  doctor->footer(
      "Run it on the server's machine, as the server's user. Exit code 3 when something is an "
      "ERROR.\n"
      "deploy/OPERATIONS.md says what each finding means.\n"
      "Example: lethe doctor --data data --model models/lethe-tiny --pid $(pidof lethe-server)");
  doctor->callback([&context, options] { context.set_exit_code(Doctor(context, *options)); });
}

}  // namespace lethe::client
