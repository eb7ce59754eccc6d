// TestServer, StoryTest: lethe-server's parts in this process on a free port, with a small synthetic model, and
// the program `lethe` beside it.
// Threads: one at a time.
#ifndef LETHE_TESTS_CLIENT_STORY_SERVER_H_
#define LETHE_TESTS_CLIENT_STORY_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/commands/context.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/rpc/rpc_server.h"
#include "server/store/data_directory.h"
#include "tests/client/program_run.h"

namespace lethe::client {

// Inputs that one vector session may hold.
inline constexpr int64_t kStoryVectorsMax = 300;

// A server with its data directory.
class TestServer {
 public:
  explicit TestServer(const std::string& directory, uint64_t model_seed = 1);
  ~TestServer() { core_.subjects.Stop(); }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  const std::string& address() const { return server_->address(); }
  const std::string& trust_path() const { return data_->trust_path(); }

 private:
  ServerCore core_;
  std::unique_ptr<DataDirectory> data_;
  std::unique_ptr<RpcServer> server_;
};

// A server, and a directory that is removed with it.
class StoryTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  ProgramRun Run(std::vector<std::string> arguments, const std::string& input = "");
  Json RunJson(std::vector<std::string> arguments);

  std::string directory_;
  std::unique_ptr<TestServer> server_;
};

}  // namespace lethe::client

#endif  // LETHE_TESTS_CLIENT_STORY_SERVER_H_
