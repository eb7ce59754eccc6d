#include "server/options.h"

#include <algorithm>
#include <map>
#include <thread>

#include <CLI/CLI.hpp>

#include "server/rpc/listen_address.h"

namespace lethe {

std::optional<int> ParseOptions(int argc, const char* const* argv, ServerOptions* options) {
  options->compute_threads =
      static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 1024u));
  CLI::App app{
      "lethe-server: streams text from models with a memory per session, and proves that it "
      "forgot.\n"
      "Sessions are held in memory; keys and the audit log are kept under --data.",
      "lethe-server"};
  app.set_config("--config", "", "Read these options from FILE (lines `name = value`)");
  app.add_option("--model", options->model_directories,
                 "Model directory (docs/model-format.md); may be given several times")
      ->required()
      ->type_name("DIR");
  app.add_option("--data", options->data_directory,
                 "Directory for keys, audit log and trust.txt; created with mode 0700")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--listen", options->listen_address,
                 "Address to serve on, without encryption; port 0 takes any free port")
      ->check(CLI::Validator(
          [](const std::string& text) {
            return std::string(ParseListenAddress(text).status().message());
          },
          ""))
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--origin", options->origin, "Name of the audit log: no space, no '+'")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--compute-threads", options->compute_threads,
                 "Evaluations that may run at once; the others wait in order")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--max-sessions", options->max_sessions, "Sessions held at once")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--max-message-bytes", options->max_message_bytes, "Largest request")
      ->check(CLI::Range(1 << 16, 1 << 30))
      ->capture_default_str();
  app.add_option("--drain-seconds", options->drain_seconds,
                 "After SIGTERM or SIGINT, how long running calls may go on")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  const std::map<std::string, LogLevel> levels = {
      {"error", LogLevel::kError}, {"info", LogLevel::kInfo}, {"debug", LogLevel::kDebug}};
  app.add_option("--log-level", options->log_level, "error, info or debug (never content)")
      ->transform(CLI::CheckedTransformer(levels))
      ->type_name("LEVEL")
      ->default_str("info");
  app.footer(
      "The first line on standard output is `lethe-server listening on HOST:PORT`. "
      "Diagnostics go to standard error.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace lethe
