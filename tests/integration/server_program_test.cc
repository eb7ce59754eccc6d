// Goal: the program lethe-server as its user meets it: first line, refusals, signals, and no
// content in what it prints.
// Method: runs the binary against a tiny model on disk and reads its pipes.
#include "tests/integration/server_program.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit/certificate/trust.h"
#include "tests/integration/server_testing.h"

namespace lethe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kSentinel[] = "SENTINEL-91c4";

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class ServerProgramTest : public ::testing::Test {
 protected:
  ServerProgramTest() { WriteTinyModel(model_, "tiny"); }

  std::vector<std::string> Arguments(const std::string& data, const std::string& listen) const {
    return {"--model",     model_,  "--data",          data, "--listen", listen,
            "--log-level", "debug", "--drain-seconds", "1"};
  }
  static std::string AddressIn(const std::string& line) {
    EXPECT_THAT(line, StartsWith("lethe-server listening on 127.0.0.1:"));
    return line.substr(line.rfind(' ') + 1);
  }

  TempDirectory directory_;
  const std::string model_ = directory_.path() + "/model";
  const std::string data_ = directory_.path() + "/data";
  const std::string log_ = directory_.path() + "/stderr";
};

TEST_F(ServerProgramTest, ServesUntilSigtermAndPrintsNoContent) {
  Program program(Arguments(data_, "127.0.0.1:0"), log_);
  const std::string address = AddressIn(program.ReadLine());
  const std::string trust_line = program.ReadLine();
  EXPECT_THAT(trust_line, HasSubstr(data_ + "/trust.txt"));
  const auto trust = audit::ParseTrust(ReadFile(data_ + "/trust.txt"));
  ASSERT_TRUE(trust.ok());
  EXPECT_EQ(trust->record_keys.size(), 1u);
  struct stat info {};
  ASSERT_EQ(stat(data_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0700u);

  const Stubs stubs(ConnectTo(address));
  Context create_context;
  v1::CreateSessionRequest create;
  create.set_display_name(kSentinel);
  v1::CreateSessionResponse created;
  ASSERT_RPC_OK(stubs.session->CreateSession(&create_context, create, &created));
  v1::GenerateRequest request;
  request.set_session_id(created.session().session_id());
  request.mutable_prompt()->set_text(kSentinel);
  request.set_subject(kSentinel);
  Context stream_context;
  const auto reader = stubs.generation->Generate(&stream_context, request);
  v1::GenerateResponse event;
  while (reader->Read(&event)) {
  }
  ASSERT_RPC_OK(reader->Finish());
  v1::AppendRequest bad;
  bad.set_session_id(created.session().session_id());
  bad.mutable_input()->set_text(kSentinel);
  bad.set_subject(std::string(200, 'x') + kSentinel);
  Context bad_context;
  v1::AppendResponse appended;
  EXPECT_FALSE(stubs.session->Append(&bad_context, bad, &appended).ok());

  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait(), 0);
  const std::string log = ReadFile(log_);
  EXPECT_THAT(log, HasSubstr("Generate OK"));
  EXPECT_THAT(log, Not(HasSubstr("SENTINEL")));
}

TEST_F(ServerProgramTest, WhateverItKeepsNobodyElseMayRead) {
  const mode_t mask = umask(022);
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = Arguments(data_, "127.0.0.1:0");
    arguments.insert(arguments.end(), more.begin(), more.end());
    Program program(arguments, log_);
    if (more.empty()) {
      AddressIn(program.ReadLine());
      program.Signal(SIGTERM);
    }
    EXPECT_EQ(program.Wait(), 0) << ReadFile(log_);
  };
  run({});
  run({"--rotate-record-key"});
  Program program(Arguments(data_, "127.0.0.1:0"), log_);
  AddressIn(program.ReadLine());
  umask(mask);
  namespace fs = std::filesystem;
  int num_files = 0;
  for (const std::string& directory : {data_, data_ + "-ledger"}) {
    for (const auto& entry : fs::recursive_directory_iterator(directory)) {
      const fs::perms others = entry.status().permissions() & fs::perms(0077);
      EXPECT_EQ(others, fs::perms::none) << entry.path();
      ++num_files;
    }
  }
  EXPECT_GT(num_files, 15);
}

TEST_F(ServerProgramTest, UsedPortIsAClearError) {
  Program first(Arguments(data_, "127.0.0.1:0"), log_);
  const std::string address = AddressIn(first.ReadLine());
  const std::string second_log = directory_.path() + "/second";
  Program second({"--model", model_, "--data", directory_.path() + "/other", "--listen", address},
                 second_log);
  EXPECT_EQ(second.Wait(), 1);
  const std::string log = ReadFile(second_log);
  EXPECT_THAT(log, HasSubstr("--listen: cannot listen on " + address));
  // gRPC's own lines are not ours.
  EXPECT_THAT(log, Not(HasSubstr(".cc:")));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
}

TEST_F(ServerProgramTest, AListenAddressOfTheWrongFormIsAUsageErrorBeforeAnythingIsLoaded) {
  for (const char* listen : {"127.0.0.1", "127.0.0.1:", ":7070", "127.0.0.1:65536", "127.0.0.1:-1",
                             "127.0.0.1:7x", "::1:7070", "a b:1", ""}) {
    const std::string log = directory_.path() + "/listen";
    Program program({"--model", "/no/such/model", "--data", data_, "--listen", listen}, log);
    EXPECT_EQ(program.Wait(), 2) << listen;
    EXPECT_THAT(ReadFile(log), HasSubstr("--listen: want HOST:PORT")) << listen;
    std::filesystem::remove(log);
  }
  EXPECT_FALSE(std::filesystem::exists(data_));
}

TEST_F(ServerProgramTest, SecondServerOnTheSameDataIsRefused) {
  Program first(Arguments(data_, "127.0.0.1:0"), log_);
  AddressIn(first.ReadLine());
  const std::string second_log = directory_.path() + "/second";
  Program second(Arguments(data_, "127.0.0.1:0"), second_log);
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(ReadFile(second_log), HasSubstr("another lethe-server uses the data directory"));
}

TEST_F(ServerProgramTest, SigintStopsAndKeysAreKeptForTheNextStart) {
  std::string trust;
  for (int round = 0; round < 2; ++round) {
    Program program(Arguments(data_, "127.0.0.1:0"), log_);
    AddressIn(program.ReadLine());
    program.Signal(SIGINT);
    EXPECT_EQ(program.Wait(), 0);
    const std::string now = ReadFile(data_ + "/trust.txt");
    EXPECT_TRUE(round == 0 || now == trust);
    trust = now;
  }
}

TEST_F(ServerProgramTest, HelpUsageErrorsAndConfigFile) {
  Program help({"--help"}, log_);
  EXPECT_THAT(help.ReadLine(), HasSubstr("lethe-server"));
  EXPECT_EQ(help.Wait(), 0);
  Program no_model({"--listen", "127.0.0.1:0"}, log_);
  EXPECT_EQ(no_model.Wait(), 2);
  Program bad_number({"--model", model_, "--compute-threads", "0"}, log_);
  EXPECT_EQ(bad_number.Wait(), 2);
  Program bad_model({"--model", directory_.path(), "--data", data_, "--listen", "127.0.0.1:0"},
                    log_);
  EXPECT_EQ(bad_model.Wait(), 1);
  const std::string config = directory_.path() + "/server.toml";
  std::ofstream(config) << "model = [\"" << model_ << "\"]\ndata = \"" << data_
                        << "\"\nlisten = \"127.0.0.1:0\"\n";
  Program configured({"--config", config}, log_);
  AddressIn(configured.ReadLine());
}

}  // namespace
}  // namespace lethe::testing
