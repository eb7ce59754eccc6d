// Goal: `lethe generate` with a request id prints an answer once and whole, though the server is killed while it prints.
// Method: the program lethe-server on a tiny model; the client's output stream kills it at its n-th byte and starts it
// again at the same address.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "client/commands/program.h"
#include "client/error_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <sys/wait.h>

#include "tests/integration/server_program.h"
#include "tests/integration/server_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Runs `action` once, when it holds so many bytes.
class ActingBuffer : public std::stringbuf {
 public:
  ActingBuffer(size_t num_bytes, std::function<void()> action)
      : num_bytes_(num_bytes), action_(std::move(action)) {}

 protected:
  int sync() override {
    if (action_ && str().size() >= num_bytes_) std::exchange(action_, nullptr)();
    return 0;
  }

 private:
  const size_t num_bytes_;
  std::function<void()> action_;
};

struct Printed {
  int exit_code = 0;
  std::string out;
  std::string err;
};

class ClientResumeTest : public ::testing::Test {
 protected:
  ClientResumeTest() {
    WriteTinyModel(directory_.path() + "/model", "tiny");
    Start("127.0.0.1:0");
  }

  void Start(const std::string& address) {
    program_ = std::make_unique<Program>(
        std::vector<std::string>{"--model", directory_.path() + "/model", "--data",
                                 directory_.path() + "/data", "--listen", address},
        directory_.path() + "/stderr");
    address_ = program_->ReadAddress();
  }
  void KillAndStart() {
    program_->Kill();
    Start(address_);
  }
  Printed Run(std::vector<std::string> arguments, size_t num_bytes,
              std::function<void()> action) const {
    arguments.insert(arguments.begin(), {"--server", address_});
    std::istringstream in;
    ActingBuffer buffer(num_bytes, std::move(action));
    std::ostream out(&buffer);
    std::ostringstream err;
    Printed printed;
    printed.exit_code = client::RunProgram(arguments, client::Io{.in = in, .out = out, .err = err});
    printed.out = buffer.str();
    printed.err = err.str();
    return printed;
  }
  std::string NewSession() const {
    std::string id = Run({"session", "create", "--id-only"}, 0, nullptr).out;
    id.pop_back();
    return id;
  }
  static std::vector<std::string> Line(const std::string& session) {
    return {
        "generate", session, "--prompt",      "and then", "--max-tokens",         "500",
        "--seed",   "5",     "--temperature", "1",        "--ignore-end-of-text", "--request-id",
        "g1"};
  }

  TempDirectory directory_;
  std::unique_ptr<Program> program_;
  std::string address_;
};

TEST_F(ClientResumeTest, AnAnswerIsPrintedOnceAndWholeThoughTheServerIsKilled) {
  const Printed whole = Run(Line(NewSession()), 0, nullptr);
  ASSERT_EQ(whole.exit_code, client::kExitDone) << whole.err;
  ASSERT_GE(whole.out.size(), 500u);
  EXPECT_THAT(whole.err, HasSubstr("tokens/s"));
  for (const size_t num_bytes : {size_t{1}, size_t{40}}) {
    bool is_killed = false;
    const Printed printed = Run(Line(NewSession()), num_bytes, [&] {
      is_killed = true;
      KillAndStart();
    });
    ASSERT_TRUE(is_killed);
    EXPECT_EQ(printed.exit_code, client::kExitDone) << printed.err;
    EXPECT_EQ(printed.out, whole.out);
    EXPECT_THAT(printed.err, HasSubstr("answer 500 tokens"));
    EXPECT_THAT(printed.err, Not(HasSubstr("tokens/s")));  // of a stream that went on
  }
}

// Without an id nothing can go on.
TEST_F(ClientResumeTest, AStreamWithoutAnIdBreaks) {
  std::vector<std::string> line = Line(NewSession());
  line.resize(line.size() - 2);
  const Printed printed = Run(line, 1, [&] { KillAndStart(); });
  EXPECT_EQ(printed.exit_code, client::kExitRefused);
  EXPECT_THAT(printed.err, HasSubstr("no server answers"));
}

// Bytes that a process has not read yet of connections to this port.
size_t UnreadBytes(const std::string& address) {
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  size_t unread = 0;
  // gRPC listens on IPv4 addresses with sockets of either kind.
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      unsigned local_port = 0;
      unsigned queue = 0;
      const int num_read = std::sscanf(
          line.c_str(), " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %*x %*x:%x", &local_port, &queue);
      if (num_read == 2 && static_cast<int>(local_port) == port) unread += queue;
    }
  }
  return unread;
}

// The server is stopped with the whole request in its socket, then killed: its client cannot know what became of it.
TEST_F(ClientResumeTest, AForgetWhoseAnswerIsLostIsDoneOnceByItsRepeat) {
  const std::string session = NewSession();
  ASSERT_EQ(Run({"append", session, "--text", std::string(500, 'x')}, 0, nullptr).exit_code, 0);
  v1::ForgetRequest request;
  request.set_session_id(session);
  request.set_request_id("forget-1");
  request.set_derived_policy(v1::DERIVED_POLICY_FAIL);
  for (uint64_t id = 2; id < 500; id += 2) {
    v1::TokenRange* range = request.mutable_selection()->mutable_tokens()->add_ranges();
    range->set_first(id);
    range->set_end(id + 1);
  }
  const size_t request_bytes = request.ByteSizeLong();
  ASSERT_GT(request_bytes, 1000u);  // more than whatever else a connection holds
  const auto client = client::Client::Connect({.address = address_});
  ASSERT_OK(client.status());
  v1::GetSessionRequest look;
  look.set_session_id(session);
  ASSERT_OK((*client)->GetSession(look).status());
  program_->Signal(SIGSTOP);
  int state = 0;  // told when the last of its threads has stopped
  ASSERT_EQ(waitpid(program_->process(), &state, WUNTRACED), program_->process());
  ASSERT_TRUE(WIFSTOPPED(state));
  absl::Status status;
  std::atomic<bool> ended{false};
  std::thread call([&] {
    status = (*client)->Forget(request).status();
    ended = true;
  });
  while (!ended && UnreadBytes(address_) < request_bytes) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(ended);
  program_->Kill();
  call.join();
  EXPECT_THAT(client::FormatError(status, address_),
              HasSubstr("repeat the command with --request-id forget-1"));
  Start(address_);
  const auto again = client::Client::Connect({.address = address_});
  ASSERT_OK(again.status());
  const auto first = (*again)->Forget(request);
  ASSERT_OK(first.status());
  const auto second = (*again)->Forget(request);
  ASSERT_OK(second.status());
  EXPECT_TRUE(second->repeated_request());
  EXPECT_EQ(second->certificate().leaf_index(), first->certificate().leaf_index());
}

}  // namespace
}  // namespace lethe::testing
