// Goal: lethe-server --device cpu-batched answers as --device cpu: streams that run together draw the tokens and end in the
// digests that they have alone, after a Forget too, with fewer slots than sessions; what its metrics and options say.
// Method: the program twice against one model on disk, eight clients at once against the second.
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/integration/server_program.h"
#include "tests/integration/server_testing.h"
#include "tests/testing/http_get.h"

namespace lethe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kClients = 8;
constexpr int kDrawn = 24;

// What a client saw, to compare.
struct Story {
  std::string tokens;
  std::string digest;  // before the Forget
  std::string forgotten_digest;
};

std::string DigestOf(const Stubs& stubs, const std::string& session_id) {
  Context context;
  v1::GetStateDigestRequest request;
  request.set_session_id(session_id);
  v1::GetStateDigestResponse response;
  const grpc::Status status = stubs.session->GetStateDigest(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.digest().sha256();
}

Story Tell(const std::string& address, int client) {
  const Stubs stubs(ConnectTo(address));
  Context create_context;
  v1::CreateSessionResponse created;
  EXPECT_TRUE(stubs.session->CreateSession(&create_context, {}, &created).ok());
  v1::AppendRequest append;
  append.set_session_id(created.session().session_id());
  append.mutable_input()->set_text(absl::StrCat(std::string(70, 'a'), client));
  append.set_subject("first");
  Context append_context;
  v1::AppendResponse appended;
  EXPECT_TRUE(stubs.session->Append(&append_context, append, &appended).ok());
  v1::GenerateRequest generate;
  generate.set_session_id(append.session_id());
  generate.mutable_prompt()->set_text(absl::StrCat("then ", client));
  generate.mutable_output()->set_max_tokens(kDrawn);
  generate.mutable_output()->set_ignore_end_of_text(true);
  generate.mutable_sampling()->set_temperature(1);
  generate.mutable_sampling()->set_seed(static_cast<uint64_t>(client));
  Story story;
  Context stream_context;
  const auto reader = stubs.generation->Generate(&stream_context, generate);
  for (v1::GenerateResponse event; reader->Read(&event);) {
    for (const auto& token : event.delta().tokens()) story.tokens += token.SerializeAsString();
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  story.digest = DigestOf(stubs, append.session_id());
  v1::ForgetRequest forget;
  forget.set_session_id(append.session_id());
  forget.mutable_selection()->set_subject("first");
  forget.set_derived_policy(v1::DERIVED_POLICY_KEEP_AND_REPORT);
  Context forget_context;
  v1::ForgetResponse forgotten;
  const grpc::Status erased = stubs.forgetting->Forget(&forget_context, forget, &forgotten);
  EXPECT_TRUE(erased.ok()) << erased.error_message();
  story.forgotten_digest = DigestOf(stubs, append.session_id());
  return story;
}

std::string ReadText(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class ServerDeviceTest : public ::testing::Test {
 protected:
  ServerDeviceTest() { WriteTinyModel(model_, "tiny"); }

  std::vector<std::string> Arguments(const std::string& data,
                                     const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {
        "--model", model_, "--data", directory_.path() + "/" + data, "--listen", "127.0.0.1:0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  // Of a start that is refused: the exit status and what it said.
  std::pair<int, std::string> Refusal(const std::vector<std::string>& more) const {
    const std::string log = absl::StrCat(directory_.path(), "/", more.back());
    Program program(Arguments("refused", more), log);
    const int code = program.Wait();
    return {code, ReadText(log)};
  }

  TempDirectory directory_;
  const std::string model_ = directory_.path() + "/model";
  const std::string log_ = directory_.path() + "/stderr";
};

TEST_F(ServerDeviceTest, StreamsTogetherAreTheStreamsAlone) {
  std::vector<Story> alone;
  {
    Program program(Arguments("alone", {}), log_);
    const std::string address = program.ReadAddress();
    for (int i = 0; i < kClients; ++i) alone.push_back(Tell(address, i));
  }
  Program program(Arguments("together", {"--device", "cpu-batched", "--device-slots", "3",
                                         "--device-batch", "4", "--metrics", "127.0.0.1:0"}),
                  log_);
  const std::string address = program.ReadAddress();
  program.ReadLine();  // the trust file
  const std::string url = program.ReadLine();
  std::vector<Story> together(kClients);
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] { together[static_cast<size_t>(i)] = Tell(address, i); });
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_FALSE(alone[i].tokens.empty());
    EXPECT_EQ(together[i].tokens, alone[i].tokens) << i;
    EXPECT_EQ(together[i].digest, alone[i].digest) << i;
    EXPECT_EQ(together[i].forgotten_digest, alone[i].forgotten_digest) << i;
    EXPECT_NE(alone[i].digest, alone[i].forgotten_digest) << i;
  }
  ASSERT_THAT(url, StartsWith("metrics: http://127.0.0.1:"));
  const std::string page = HttpGet(url.substr(16, url.rfind('/') - 16), "/metrics");
  EXPECT_THAT(page, HasSubstr("\nlethe_device_slots{model=\"tiny\"} 3\n"));
  EXPECT_THAT(page, HasSubstr("\nlethe_device_slots_in_use{model=\"tiny\"} "));
  EXPECT_THAT(page, HasSubstr("\nlethe_device_step_streams_bucket{model=\"tiny\",le=\"+Inf\"} "));
  EXPECT_THAT(page, HasSubstr(absl::StrCat("\nlethe_device_step_streams_sum{model=\"tiny\"} ",
                                           kClients * kDrawn, "\n")));
  // Eight sessions in three slots.
  EXPECT_THAT(page, HasSubstr("\nlethe_device_spills_total{model=\"tiny\"} "));
  EXPECT_THAT(page, Not(HasSubstr("\nlethe_device_spills_total{model=\"tiny\"} 0\n")));
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait(), 0);
}

TEST_F(ServerDeviceTest, WhatIsOutOfRangeIsNamedWithItsRange) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--device", "gpu"}, "cpu-batched"},
      {{"--device-slots", "0"}, "1 to 65536"},
      {{"--device-batch", "4097"}, "1 to 4096"}};
  for (const auto& [arguments, range] : cases) {
    const auto [code, text] = Refusal(arguments);
    EXPECT_NE(code, 0) << arguments[0];
    EXPECT_THAT(text, HasSubstr(arguments[0]));
    EXPECT_THAT(text, HasSubstr(range));
  }
}

}  // namespace
}  // namespace lethe::testing
