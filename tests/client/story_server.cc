#include "tests/client/story_server.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "server/model/synthetic_model.h"
#include "tests/testing/status_matchers.h"

namespace lethe::client {
namespace {

constexpr char kConfig[] = R"({
  "format": "lethe-model/1", "name": "test-model", "tokenizer": "bytes", "vocab_size": 256,
  "end_of_text": 0, "width": 32, "max_tokens": 4096, "norm_eps": 1e-6,
  "layers": [
    {"type": "local", "heads": 2, "head_dim": 16, "window": 8, "conv_width": 2, "mlp_width": 32,
     "alibi_slopes": [0.05, 0.05]},
    {"type": "memory", "conv_width": 2, "groups": [
      {"kind": "sv", "heads": 1, "key_dim": 8, "value_dim": 8, "sigma": 1.0, "box_mass": 16,
       "ridge": 0.00048828125},
      {"kind": "ovq", "heads": 1, "key_dim": 8, "value_dim": 8, "slots": 32}]},
    {"type": "mlp", "mlp_width": 32}]})";

}  // namespace

TestServer::TestServer(const std::string& directory, uint64_t model_seed)
    : core_(/*compute_threads=*/1, /*max_sessions=*/16) {
  auto data = DataDirectory::Open(directory, "lethe.dev/audit/test");
  EXPECT_OK(data.status());
  data_ = *std::move(data);
  core_.trail = {data_->log(), data_->recorder(), {}, "lethe test"};
  core_.record_spki = data_->record_spki();
  core_.max_vectors = kStoryVectorsMax;
  const auto config = ParseModelConfig(kConfig);
  EXPECT_OK(config.status());
  auto model = Model::Create(*config, SyntheticTensors(*config, model_seed));
  EXPECT_OK(model.status());
  EXPECT_OK(core_.models.Add(*std::move(model)));
  auto server = RpcServer::Start(&core_, {.listen_address = "127.0.0.1:0"});
  EXPECT_OK(server.status());
  server_ = *std::move(server);
}

void StoryTest::SetUp() {
  std::string pattern = ::testing::TempDir() + "lethe-story-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  directory_ = pattern;
  server_ = std::make_unique<TestServer>(directory_ + "/data");
}

void StoryTest::TearDown() {
  server_.reset();
  std::filesystem::remove_all(directory_);
}

ProgramRun StoryTest::Run(std::vector<std::string> arguments, const std::string& input) {
  arguments.insert(arguments.begin(), {"--server", server_->address()});
  return RunLethe(arguments, input);
}

Json StoryTest::RunJson(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  const ProgramRun run = Run(arguments);
  EXPECT_EQ(run.exit_code, kExitDone) << run.err;
  return Json::parse(run.out, nullptr, false);
}

}  // namespace lethe::client
