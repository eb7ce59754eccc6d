// Goal: `lethe token new` makes a token once, with the line by which a server knows it, and no token leaves this machine in
// plain text.
// Method: the program as a function, without a server.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "audit/crypto/sha256.h"
#include "tests/audit/temp_directory.h"
#include "tests/client/program_run.h"

namespace lethe::client {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string HashOf(const std::string& token) {
  return absl::BytesToHexString(audit::AsStringView(audit::Sha256Of(token)));
}

TEST(TokenTest, ATokenComesWithItsLine) {
  const ProgramRun run = RunLethe({"token", "new", "clinic-a", "anna", "--roles", "user,eraser",
                                   "--expires", "2027-01-31T00:00:00Z", "--json"});
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  const Json json = Json::parse(run.out);
  const std::string token = json["token"];
  EXPECT_THAT(token, MatchesRegex("lethe_[A-Za-z0-9_-]+"));
  EXPECT_EQ(token.size(), 6u + 43u);
  EXPECT_EQ(json["line"],
            absl::StrCat("clinic-a anna user,eraser 2027-01-31T00:00:00Z ", HashOf(token)));
  const Json again = Json::parse(RunLethe({"token", "new", "clinic-a", "anna", "--json"}).out);
  EXPECT_NE(again["token"], token);
}

TEST(TokenTest, IntoAFileOfItsOwnersAlone) {
  const audit::TempDirectory directory;
  const std::string path = directory.path() + "/anna.token";
  const ProgramRun run = RunLethe({"token", "new", "clinic-a", "anna", "--out", path});
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  std::ifstream file(path);
  std::string token;
  ASSERT_TRUE(std::getline(file, token));
  EXPECT_EQ(run.out, absl::StrCat("clinic-a anna user never ", HashOf(token), "\n"));
  EXPECT_EQ(std::filesystem::status(path).permissions() & std::filesystem::perms::mask,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_EQ(RunLethe({"token", "new", "clinic-a", "anna", "--out", path}).exit_code, kExitUsage)
      << "a token is never overwritten";
}

TEST(TokenTest, WhatNoServerWouldTakeIsRefused) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"Clinic", "anna"},
                                             {"clinic", "an na"},
                                             {"clinic", "anna-"},
                                             {std::string(64, 'a'), "anna"},
                                             {"clinic", "anna", "--roles", "root"},
                                             {"clinic", "anna", "--roles", "user,"},
                                             {"clinic", "anna", "--expires", "tomorrow"},
                                             {"clinic"}}) {
    std::vector<std::string> arguments = {"token", "new"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const ProgramRun run = RunLethe(arguments);
    EXPECT_EQ(run.exit_code, kExitUsage) << ::testing::PrintToString(words);
    EXPECT_EQ(run.out, "");
  }
}

TEST(TokenTest, NoTokenLeavesThisMachineInPlainText) {
  const audit::TempDirectory directory;
  const std::string path = directory.path() + "/token";
  std::ofstream(path) << "lethe_secret\n";
  for (const char* server : {"192.0.2.1:7070", "127.example.com:7070", "[2001:db8::1]:7070"}) {
    const ProgramRun run = RunLethe({"session", "list", "--server", server, "--token-file", path});
    EXPECT_EQ(run.exit_code, kExitUsage) << server;
    EXPECT_THAT(run.err, HasSubstr("over TLS alone"));
    EXPECT_THAT(run.err, ::testing::Not(HasSubstr("lethe_secret")));
  }
}

TEST(TokenTest, FilesOfAConnectionAreNamedWhenTheyDoNotServe) {
  const audit::TempDirectory directory;
  const std::string empty = directory.path() + "/empty";
  std::ofstream(empty) << "\n";
  const std::string some = directory.path() + "/some";
  std::ofstream(some) << "text\n";
  struct Case {
    std::vector<std::string> words;
    const char* text;
  };
  for (const Case& bad : std::vector<Case>{
           {{"--token-file", empty}, "--token-file: the file is empty"},
           {{"--token-file", directory.path() + "/none"}, "--token-file: "},
           {{"--tls-ca", empty}, "--tls-ca: the file is empty"},
           {{"--tls-ca", some, "--tls-cert", some}, "a client certificate and its key"},
           {{"--tls-cert", some, "--tls-key", some}, "wants the server's CA"}}) {
    std::vector<std::string> arguments = {"session", "list"};
    arguments.insert(arguments.end(), bad.words.begin(), bad.words.end());
    const ProgramRun run = RunLethe(arguments);
    EXPECT_EQ(run.exit_code, kExitUsage) << bad.text;
    EXPECT_THAT(run.err, HasSubstr(bad.text));
  }
}

}  // namespace
}  // namespace lethe::client
