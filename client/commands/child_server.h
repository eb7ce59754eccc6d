// ChildServer: a private lethe-server process for one replay, on a free port of the loopback interface.
//
// Equation:  none.
// Shapes:    none.
// Units:     seconds.
// Requires:  none.
// Rejects:   Start: INVALID_ARGUMENT when the program cannot be run, ends before it listens (with its
//            last line of output), or does not listen within kStartTimeoutSeconds.
// Effects:   makes a temporary data directory; the destructor ends the process and removes the directory.
//            The process also ends when this one dies.
// Numerics:  none.
// Threads:   owner thread.
#ifndef LETHE_CLIENT_COMMANDS_CHILD_SERVER_H_
#define LETHE_CLIENT_COMMANDS_CHILD_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <sys/types.h>

namespace lethe::client {

class ChildServer {
 public:
  static constexpr int kStartTimeoutSeconds = 120;

  struct Options {
    std::string program;          // path of lethe-server
    std::string model_directory;  // the only model; "": none, vector sessions alone
    std::string device = "cpu";   // where it computes, as lethe-server's --device
  };

  static absl::StatusOr<std::unique_ptr<ChildServer>> Start(const Options& options);
  ~ChildServer();
  ChildServer(const ChildServer&) = delete;
  ChildServer& operator=(const ChildServer&) = delete;

  // HOST:PORT.
  const std::string& address() const { return address_; }

 private:
  ChildServer() = default;
  absl::Status Spawn(const Options& options);
  absl::Status WaitUntilListening();

  std::string directory_;
  std::string address_;
  pid_t pid_ = -1;
  int output_fd_ = -1;
};

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_CHILD_SERVER_H_
