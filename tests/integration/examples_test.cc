// Goal: the examples and README's blocks on Python and on vector sessions run as they stand and tell the truth.
// Method: the programs themselves, against lethe-server; the blocks are cut out of README.md.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/commands/child_server.h"
#include "client/commands/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/testing/shell.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr char kPrograms[] = LETHE_BINARY_DIR "/bin";

constexpr char kModel[] = LETHE_SOURCE_DIR "/models/lethe-tiny";

std::unique_ptr<client::ChildServer> StartServer(const std::string& model = "") {
  auto server = client::ChildServer::Start(
      {.program = absl::StrCat(kPrograms, "/lethe-server"), .model_directory = model});
  EXPECT_OK(server.status());
  return server.ok() ? *std::move(server) : nullptr;
}

void ExpectTheStory(const std::string& example) {
  const auto server = StartServer();
  ASSERT_NE(server, nullptr);
  const ShellRun run = RunShell(absl::StrCat(example, " ", server->address(), " 2>&1"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("Forgot 40 vectors of patient-17"));
  EXPECT_THAT(run.output, HasSubstr("Both answer alike, bit for bit."));
  EXPECT_THAT(run.output, HasSubstr("Certified as record 2"));
  EXPECT_THAT(run.output, ContainsRegex("far off: score -"));
}

TEST(ExamplesTest, CppTellsItsStory) {
  ExpectTheStory(absl::StrCat(kPrograms, "/lethe-example-vectors"));
}

bool HasPython() {
  return RunShell("/usr/bin/python3 -c 'import grpc, google.protobuf' 2>&1").exit_code == 0;
}
constexpr char kNoPython[] = "no gRPC for Python (apt-get install python3-grpcio python3-protobuf)";

TEST(ExamplesTest, PythonTellsItsStory) {
  if (!HasPython()) GTEST_SKIP() << kNoPython;
  ExpectTheStory("/usr/bin/python3 " LETHE_SOURCE_DIR "/examples/vectors.py");
}

// docs/from-openai.md describes it; it checks its own claims.
TEST(ExamplesTest, ChatAsInOpenAisApiTellsItsStory) {
  if (!HasPython()) GTEST_SKIP() << kNoPython;
  const auto server = StartServer(kModel);
  ASSERT_NE(server, nullptr);
  const ShellRun run = RunShell(absl::StrCat(
      "/usr/bin/python3 " LETHE_SOURCE_DIR "/examples/chat.py ", server->address(), " 2>&1"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("Patient Kalo-17 takes zelvim."));
  EXPECT_THAT(run.output,
              HasSubstr("[held] after forget() the session is one that was never told"));
}

TEST(ExamplesTest, WithoutAServerEachSaysSo) {
  const ShellRun run = RunShell(absl::StrCat(kPrograms, "/lethe-example-vectors 127.0.0.1:1 2>&1"));
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.output, HasSubstr("lethe-example-vectors: "));
}

TEST(ExamplesTest, AServerWithoutAModelSaysSo) {
  const auto server = StartServer();
  ASSERT_NE(server, nullptr);
  const ShellRun run = RunShell(
      absl::StrCat(kPrograms, "/lethe --server ", server->address(), " session create 2>&1"));
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.output, HasSubstr("model: this server has none (--no-model)"));
  EXPECT_THAT(run.output, HasSubstr("reason: NO_MODEL"));
}

// The lines of the block that follows the heading, without their indent.
std::string BlockUnder(const std::string& heading) {
  const absl::StatusOr<std::string> readme = client::ReadFile(LETHE_SOURCE_DIR "/README.md");
  EXPECT_OK(readme.status());
  const size_t section = readme->find(heading);
  const size_t begin = readme->find("\n    ", section);
  EXPECT_NE(section, std::string::npos);
  std::string block;
  for (size_t at = begin; readme->compare(at, 5, "\n    ") == 0;) {
    const size_t end = readme->find('\n', at + 1);
    block += readme->substr(at + 5, end - at - 5) + "\n";
    at = end;
  }
  return block;
}

TEST(ExamplesTest, ReadmePythonRunsAsItStands) {
  if (!HasPython()) GTEST_SKIP() << kNoPython;
  const std::string block = BlockUnder("## From Python");
  EXPECT_LE(std::count(block.begin(), block.end(), '\n'), 20);
  ASSERT_THAT(block, HasSubstr("\"127.0.0.1:7070\""));
  const auto server = StartServer(kModel);
  ASSERT_NE(server, nullptr);
  std::string directory = ::testing::TempDir() + "lethe-readme-XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  // Paths are the repository's, but nothing may be written there.
  const std::string script =
      absl::StrCat("set -euo pipefail\ncd ", directory, "\nln -s ", LETHE_SOURCE_DIR, "/proto ",
                   LETHE_SOURCE_DIR, "/deploy .\nln -s /usr/bin/python3 python3\nPATH=$PWD:$PATH\n",
                   absl::StrReplaceAll(block, {{"127.0.0.1:7070", server->address()}}));
  ASSERT_OK(client::WriteFile(directory + "/block", script));
  const ShellRun run = RunShell(absl::StrCat("bash ", directory, "/block 2>&1"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, ContainsRegex("^ zelvim\n unknown state digest [0-9a-f]{64}"));
  std::filesystem::remove_all(directory);
}

int FreePort() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(fd);
  return ntohs(address.sin_port);
}

TEST(ExamplesTest, ReadmeBlockRunsAsItStands) {
  const std::string block = BlockUnder("## Vectors without a model");
  ASSERT_THAT(block, HasSubstr("lethe-server --no-model"));
  std::string directory = ::testing::TempDir() + "lethe-readme-XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const std::string script = absl::StrCat(
      "set -euo pipefail\ntrap 'kill $(jobs -p)' EXIT\ncd ", directory, "\nPATH=", kPrograms,
      ":$PATH\nexport LETHE_SERVER=127.0.0.1:", FreePort(), "\n",
      absl::StrReplaceAll(
          block, {{"lethe-server --no-model", "lethe-server --no-model --listen $LETHE_SERVER"}}));
  ASSERT_OK(client::WriteFile(directory + "/block", script));
  const ShellRun run = RunShell(absl::StrCat("timeout 120 bash ", directory, "/block 2>&1"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("Forgot 100 inputs"));
  EXPECT_THAT(run.output, HasSubstr("1 of 2 queries inside"));
  EXPECT_THAT(run.output, HasSubstr("VERIFIED: no check failed."));
  EXPECT_THAT(run.output, HasSubstr("Replay holds"));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace lethe::testing
