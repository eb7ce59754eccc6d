#include "client/commands/child_server.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

constexpr char kHost[] = "127.0.0.1:";
// What lethe-server takes at most, whatever the other one was started with.
constexpr char kVectorsMax[] = "1048576";
constexpr char kPromptTokensMax[] = "1048576";
constexpr std::chrono::seconds kStopTimeout(10);

// The address in a line such as "listening on 127.0.0.1:43251", or "".
std::string FindAddress(absl::string_view output) {
  const size_t start = output.find(kHost);
  if (start == absl::string_view::npos) {
    return "";
  }
  size_t end = start + sizeof(kHost) - 1;
  while (end < output.size() && absl::ascii_isdigit(static_cast<unsigned char>(output[end]))) {
    ++end;
  }
  // The number is whole only when something follows it.
  return end < output.size() ? std::string(output.substr(start, end - start)) : "";
}

std::string LastLine(absl::string_view output) {
  std::string last = "no output";
  for (const absl::string_view line : absl::StrSplit(output, '\n', absl::SkipWhitespace())) {
    last = std::string(line);
  }
  return last;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildServer>> ChildServer::Start(const Options& options) {
  std::unique_ptr<ChildServer> server(new ChildServer);
  std::error_code error;
  std::string pattern =
      (std::filesystem::temp_directory_path(error) / "lethe-replay-XXXXXX").string();
  if (error || ::mkdtemp(pattern.data()) == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot make a temporary directory: ", std::strerror(errno)));
  }
  server->directory_ = pattern;
  LETHE_RETURN_IF_ERROR(server->Spawn(options));
  LETHE_RETURN_IF_ERROR(server->WaitUntilListening());
  return server;
}

absl::Status ChildServer::Spawn(const Options& options) {
  std::vector<std::string> words = {options.program,
                                    "--listen",
                                    "127.0.0.1:0",
                                    "--data",
                                    directory_ + "/data",
                                    "--prompt-tokens",
                                    kPromptTokensMax,
                                    "--tenant-requests-per-second",
                                    "0"};
  const std::vector<std::string> serve =
      options.model_directory.empty()
          ? std::vector<std::string>{"--no-model", "--max-vectors", kVectorsMax}
          : std::vector<std::string>{"--model", options.model_directory, "--device",
                                     options.device};
  words.insert(words.end(), serve.begin(), serve.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
  }
  pid_ = ::fork();
  if (pid_ == 0) {
    // Only async-signal-safe calls between fork and exec: other threads may hold locks.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::dup2(fds[1], STDOUT_FILENO);
    ::dup2(fds[1], STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(fds[1]);
  output_fd_ = fds[0];
  return pid_ > 0 ? absl::OkStatus()
                  : absl::InvalidArgumentError(
                        absl::StrCat("cannot start a process: ", std::strerror(errno)));
}

absl::Status ChildServer::WaitUntilListening() {
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(kStartTimeoutSeconds);
  std::string output;
  while (std::chrono::steady_clock::now() < deadline) {
    pollfd poll_fd{.fd = output_fd_, .events = POLLIN, .revents = 0};
    if (::poll(&poll_fd, 1, 500) <= 0) {
      continue;
    }
    char buffer[4096];
    const ssize_t count = ::read(output_fd_, buffer, sizeof buffer);
    if (count <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the private lethe-server did not start: ", LastLine(output)));
    }
    output.append(buffer, static_cast<size_t>(count));
    address_ = FindAddress(output);
    if (!address_.empty()) {
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the private lethe-server did not listen within ", kStartTimeoutSeconds, " s"));
}

ChildServer::~ChildServer() {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    const auto deadline = std::chrono::steady_clock::now() + kStopTimeout;
    while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        break;
      }
      ::usleep(10'000);
    }
  }
  if (output_fd_ >= 0) {
    ::close(output_fd_);
  }
  if (!directory_.empty()) {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
}

}  // namespace lethe::client
