#include "server/options.h"

#include <algorithm>
#include <iostream>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>

#include "audit/witness/witness_client.h"
#include "server/limit_options.h"
#include "server/metrics/metrics_server.h"
#include "server/rpc/listen_address.h"

namespace lethe {
namespace {

bool IsLogName(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return c > ' ' && c <= '~' && c != '+'; });
}

std::optional<LogLevel> LevelOf(const std::string& name) {
  if (name == "error") return LogLevel::kError;
  if (name == "info") return LogLevel::kInfo;
  if (name == "debug") return LogLevel::kDebug;
  return std::nullopt;
}

void AddLogLevel(CLI::App* app, ServerOptions* options) {
  const auto set = [options](const std::string& name) {
    options->log_level = LevelOf(name).value_or(options->log_level);
  };
  app->add_option_function<std::string>("--log-level", set, "error, info or debug (never content)")
      ->check(CLI::Validator(
          [](const std::string& name) { return LevelOf(name) ? "" : "want error, info or debug"; },
          ""))
      ->type_name("LEVEL")
      ->default_str("info");
  const auto set_format = [options](const std::string& name) {
    options->log_format = name == "json" ? LogFormat::kJson : LogFormat::kText;
  };
  app->add_option_function<std::string>("--log-format", set_format,
                                        "text, or json: one object a line")
      ->check(CLI::IsMember({"text", "json"}))
      ->default_str("text");
}

// What is beside the API: health is always served.
void AddOperationOptions(CLI::App* app, ServerOptions* options) {
  app->add_option("--metrics", options->metrics_address,
                  "Address of Prometheus metrics (/metrics, /livez, /readyz), plain HTTP without "
                  "content; port 0 takes any free port [none]")
      ->check(CLI::Validator(
          [](const std::string& text) { return std::string(CheckMetricsAddress(text).message()); },
          ""))
      ->type_name("HOST:PORT");
  app->add_flag("--reflection", options->reflection,
                "Let clients ask for the API's descriptors (gRPC server reflection)");
  app->add_option("--keepalive-seconds", options->keepalive_seconds,
                  "After so long without a word of a client it is sent a ping")
      ->check(CLI::Range(1, 7200))
      ->capture_default_str();
  app->add_option("--keepalive-timeout-seconds", options->keepalive_timeout_seconds,
                  "How long a client may take to answer a ping until its calls are cancelled")
      ->check(CLI::Range(1, 7200))
      ->capture_default_str();
}

CLI::Validator LogName() {
  return CLI::Validator(
      [](const std::string& text) {
        return IsLogName(text) ? "" : "want printable ASCII without space and '+'";
      },
      "");
}

// docs/audit-log.md has what they do.
void AddLogOptions(CLI::App* app, ServerOptions* options) {
  app->add_option("--origin", options->origin,
                  "Name of a new audit log: no space, no '+' [lethe.dev/audit/local]")
      ->check(LogName())
      ->type_name("NAME");
  app->add_option("--expect-checkpoint", options->expected_checkpoints,
                  "Signed head of the log that was kept elsewhere (a checkpoint); the log must "
                  "extend it, or it is frozen; may be given several times")
      ->type_name("FILE");
  app->add_flag("--adopt-log", options->adopt_log,
                "Take the log for the newest copy there is, although its anchor in the erasure "
                "ledger's directory is gone");
  app->add_option("--witness", options->witnesses,
                  "Witness that cosigns every head of the log, as its key and address: "
                  "NAME+ID+KEY=http://HOST:PORT; may be given several times, then all must")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return std::string(audit::ParseWitnessTarget(text).status().message());
          },
          ""))
      ->type_name("WITNESS");
  app->add_flag("!--witness-optional", options->witness_required,
                "Go on without the cosignature of a witness that does not answer; else nothing is "
                "recorded meanwhile");
  CLI::Option_group* change = app->add_option_group("Keys", "Changes a key and ends");
  change->add_flag("--rotate-record-key", options->rotate_record_key,
                   "New key for signing records; the log says from which record on it is valid");
  change
      ->add_option("--rotate-log-key", options->rotate_log_key,
                   "Close the log and begin the next one under this name and a new key")
      ->check(LogName())
      ->type_name("NAME");
  change
      ->add_option("--restore-log", options->restore_log,
                   "Leave a frozen log as it is and begin another one, whose first record says so")
      ->check(LogName())
      ->type_name("NAME");
  change->require_option(0, 1);
}

// How many sessions there may be, which are in memory, and what is kept of the others' states.
void AddSessionOptions(CLI::App* app, ServerOptions* options) {
  app->add_option("--max-sessions", options->max_sessions, "Sessions held at once")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  app->add_option("--max-vectors", options->max_vectors, "Inputs that one vector session holds")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  app->add_option("--stored-input-mib", options->stored_input_mib,
                  "MiB a session may store of what its memories took from the inputs, so that a "
                  "Forget need not evaluate the model; the oldest are dropped first and evaluated "
                  "again when needed (a Forget may hold as much again while it runs)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  app->add_option(
         "--resident-mib", options->resident_mib,
         "MiB that sessions may hold in memory before those used longest ago leave it until "
         "they are used again; 0 = no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
      ->capture_default_str();
  app->add_option("--idle-minutes", options->idle_minutes,
                  "After so long without use a session leaves memory; 0 = never")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  app->add_option("--snapshot-mib", options->snapshot_mib,
                  "MiB on disk for encrypted snapshots of sessions' states, so that one that comes "
                  "back is not evaluated from its beginning; 0 = none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
      ->capture_default_str();
}

// CLI11's sentence, with the option's name and what it takes where that lacks.
std::string UsageText(const CLI::ParseError& error, const CLI::App& app) {
  const std::string sentence = error.what();
  if (dynamic_cast<const CLI::FileError*>(&error) != nullptr) {
    return "--config: cannot read the file";
  }
  if (dynamic_cast<const CLI::ConfigError*>(&error) != nullptr) {
    const std::string unknown = "INI was not able to parse ";
    if (sentence.rfind(unknown, 0) != 0) return "--config: " + sentence;
    return "--config: there is no option " + sentence.substr(unknown.size());
  }
  // "--data: 1 required DIR missing".
  const size_t missing = sentence.find(": 1 required ");
  if (missing != std::string::npos) {
    const CLI::Option* option = app.get_option_no_throw(sentence.substr(0, missing));
    const std::string type = option == nullptr ? "" : " (" + option->get_type_name() + ")";
    return sentence.substr(0, missing) + ": want a value" + type;
  }
  return sentence;
}

}  // namespace

std::optional<int> ParseOptions(int argc, const char* const* argv, ServerOptions* options) {
  options->compute_threads =
      static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 1024u));
  SetMemoryDefaults(options);
  CLI::App app{
      "lethe-server: streams text from models with a memory per session, and proves that it "
      "forgot.\n"
      "Sessions, keys and the audit log are kept under --data and survive its end.",
      "lethe-server"};
  app.set_version_flag("--version", "lethe-server " LETHE_VERSION);
  app.set_config("--config", "", "Read these options from FILE (lines `name = value`)");
  // A misspelt name must not leave a default in force.
  app.allow_config_extras(CLI::config_extras_mode::error);
  CLI::Option* model =
      app.add_option("--model", options->model_directories,
                     "Model directory (docs/model-format.md); may be given several times")
          ->type_name("DIR");
  app.add_flag("--no-model", options->no_model, "Serve vector sessions alone, which need no model")
      ->excludes(model);
  app.add_flag(
      "--check", options->check,
      "Check options, files, ports and models, read every stored session, name those that are "
      "damaged, and exit: 0 = all is well, 1 = not, 2 = an option is wrong");
  app.add_option("--data", options->data_directory,
                 "Directory for sessions, keys, audit log and trust.txt; created with mode 0700")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option(
         "--erasure-ledger", options->erasure_ledger,
         "Directory of the erasure ledger, which makes a restored copy of --data forget what "
         "was forgotten since; no part of any backup, and needed to start and to change "
         "keys [the --data directory's name with -ledger behind it]")
      ->type_name("DIR");
  app.add_option("--listen", options->listen_address,
                 "Address to serve on; port 0 takes any free port. Beyond this machine it wants "
                 "--tls-cert, --tokens or --client-certificates, and the edge")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return std::string(ParseListenAddress(text).status().message());
          },
          ""))
      ->type_name("HOST:PORT")
      ->capture_default_str();
  AddLogOptions(&app, options);
  app.add_option("--compute-threads", options->compute_threads,
                 "Evaluations that may run at once; the others wait in order")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  AddDeviceOptions(&app, &options->device);
  AddSessionOptions(&app, options);
  app.add_option("--max-message-bytes", options->max_message_bytes, "Largest request")
      ->check(CLI::Range(1 << 16, 1 << 30))
      ->capture_default_str();
  app.add_option("--drain-seconds", options->drain_seconds,
                 "After SIGTERM or SIGINT, how long running calls may go on")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  AddIdentityOptions(&app, &options->identity);
  AddLimitOptions(&app, &options->limits);
  AddOperationOptions(&app, options);
  AddLogLevel(&app, options);
  app.footer(
      "The first line on standard output is `lethe-server listening on HOST:PORT`. "
      "Diagnostics go to standard error.");
  try {
    app.parse(argc, argv);
    // Not CLI11's required(), which would come before an unknown option's name.
    const bool changes_key = options->rotate_record_key || !options->rotate_log_key.empty() ||
                             !options->restore_log.empty();
    if (options->model_directories.empty() && !options->no_model && !changes_key) {
      throw CLI::RequiredError("--model (or --no-model)");
    }
    options->device.solver_threads = options->compute_threads;
    const absl::Status exposure = CheckExposure(options->identity, options->listen_address);
    if (!exposure.ok()) {
      throw CLI::ValidationError(std::string(exposure.message()));
    }
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::cerr << "lethe-server: " << UsageText(error, app) << " (try lethe-server --help)\n";
    return 2;
  }
  return std::nullopt;
}

}  // namespace lethe
