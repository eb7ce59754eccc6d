// Goal: `lethe generate` with a request id prints an answer once and whole, though the server is killed while it prints.
// Method: the program lethe-server on a tiny model; the client's output stream kills it at its n-th byte and starts it
// again at the same address.
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/commands/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/integration/server_program.h"
#include "tests/integration/server_testing.h"

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

}  // namespace
}  // namespace lethe::testing
