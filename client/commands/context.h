// Context: what every command of the program `lethe` shares: streams, global options, the connection,
// the exit code.
//
// Equation:  none.
// Shapes:    none.
// Units:     timeout in seconds.
// Requires:  Io's streams outlive the context.
// Rejects:   client(): as Client::Connect and ReadConnectOptions (connection.h).
// Effects:   Finish sets the exit code and writes what failed to the error stream (as one JSON object
//            with --json): 1 for a status that a call returned (refused by the server, or no server),
//            3 for DATA_LOSS found here (a check failed), 2 for every other one (wrong usage).
//            Results go to the output stream, everything else to the error stream.
// Numerics:  none.
// Threads:   owner thread.
#ifndef LETHE_CLIENT_COMMANDS_CONTEXT_H_
#define LETHE_CLIENT_COMMANDS_CONTEXT_H_

#include <istream>
#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/client.h"
#include "client/commands/color.h"
#include "nlohmann/json.hpp"

namespace lethe::client {

using Json = nlohmann::ordered_json;

inline constexpr int kExitDone = 0;
inline constexpr int kExitRefused = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitVerificationFailed = 3;

struct Io {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  bool color = false;  // wanted on those that are terminals
};

// For an output stream that took no more.
inline absl::Status OutputError() {
  return absl::InvalidArgumentError("cannot write standard output");
}

struct GlobalOptions {
  std::string server = "127.0.0.1:7070";
  std::string tls_ca_path;  // empty: plain text
  std::string tls_certificate_path;
  std::string tls_key_path;
  std::string token_path;
  double timeout_s = 600;
  bool json = false;
};

class Context {
 public:
  explicit Context(Io io) : io_(io) {}

  std::ostream& out() { return io_.out; }
  std::ostream& err() { return io_.err; }
  const Io& io() const { return io_; }
  GlobalOptions& options() { return options_; }
  bool json() const { return options_.json; }

  // The connection to --server, made at first use.
  absl::StatusOr<Client*> client();

  // A word for the output stream, in colour where that is a terminal that wants it.
  std::string Paint(Color color, absl::string_view word) const {
    return Painted(io_.out_is_terminal && io_.color, color, word);
  }

  // One line of JSON on the output stream; bytes that are not UTF-8 appear as U+FFFD.
  void PrintJson(const Json& value);

  // Ends a command with what it returned.
  void Finish(const absl::Status& status);
  void set_exit_code(int exit_code) { exit_code_ = exit_code; }
  int exit_code() const { return exit_code_; }

 private:
  int Fail(const absl::Status& status);

  Io io_;
  GlobalOptions options_;
  std::unique_ptr<Client> client_;
  int exit_code_ = kExitDone;
};

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_CONTEXT_H_
