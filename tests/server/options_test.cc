// Goal: the command line of lethe-server: values arrive, and what is wrong is named before anything is made.
// Method: command lines parsed in this process, with the error stream captured.
#include "server/options.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"

namespace lethe {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Parsed {
  std::optional<int> code;
  ServerOptions options;
  std::string out;
  std::string err;
};

Parsed Parse(std::vector<const char*> words) {
  words.insert(words.begin(), "lethe-server");
  Parsed parsed;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  parsed.code = ParseOptions(static_cast<int>(words.size()), words.data(), &parsed.options);
  parsed.out = ::testing::internal::GetCapturedStdout();
  parsed.err = ::testing::internal::GetCapturedStderr();
  return parsed;
}

TEST(ServerOptionsTest, ValuesArrive) {
  const Parsed parsed = Parse({"--model", "a", "--log-level", "debug", "--origin", "b/c"});
  EXPECT_EQ(parsed.code, std::nullopt) << parsed.err;
  EXPECT_EQ(parsed.options.log_level, LogLevel::kDebug);
  EXPECT_EQ(parsed.options.origin, "b/c");
  EXPECT_EQ(Parse({"--model", "a"}).options.log_level, LogLevel::kInfo);
}

TEST(ServerOptionsTest, VersionNeedsNoModel) {
  const Parsed parsed = Parse({"--version"});
  EXPECT_EQ(parsed.code, 0);
  EXPECT_THAT(parsed.out, HasSubstr("lethe-server "));
}

TEST(ServerOptionsTest, WhatIsWrongIsNamed) {
  struct Line {
    std::vector<const char*> words;
    const char* text;
  };
  for (const Line& line : std::vector<Line>{
           {{}, "--model (or --no-model) is required"},
           {{"--no-such-option"}, "--no-such-option"},
           {{"--model", "m", "--origin", "a b"}, "--origin: want printable ASCII without space"},
           {{"--model", "m", "--origin", "a+b"}, "--origin: want"},
           {{"--model", "m", "--origin", ""}, "--origin: want"},
           {{"--model", "m", "--stored-input-mib", "-1"}, "--stored-input-mib: "},
           {{"--model", "m", "--log-level", "3"}, "--log-level: want error, info or debug"},
           {{"--model", "m", "--log-level", "0"}, "--log-level: want error, info or debug"},
           {{"--model", "m", "--compute-threads", "x"},
            "--compute-threads: Value x not in range 1 to 1024"},
           {{"--model", "m", "--config", "/no/such/file"}, "--config: cannot read the file"},
           {{"--data"}, "--data: want a value (DIR"}}) {
    const Parsed parsed = Parse(line.words);
    EXPECT_EQ(parsed.code, 2) << line.text;
    EXPECT_THAT(parsed.err, StartsWith("lethe-server: "));
    EXPECT_THAT(parsed.err, HasSubstr(line.text));
    EXPECT_THAT(parsed.err, EndsWith(" (try lethe-server --help)\n"));
  }
}

TEST(ServerOptionsTest, AMisspeltNameInAConfigurationFileIsNoDefault) {
  const std::string path = ::testing::TempDir() + "lethe-server.conf";
  std::ofstream(path) << "model = a\nmax-sessions = 3\n";
  EXPECT_EQ(Parse({"--config", path.c_str()}).options.max_sessions, 3);
  std::ofstream(path) << "model = a\nmax-sesions = 3\n";
  const Parsed parsed = Parse({"--config", path.c_str()});
  EXPECT_EQ(parsed.code, 2);
  EXPECT_THAT(parsed.err, HasSubstr("--config: ")) << parsed.err;
  EXPECT_THAT(parsed.err, HasSubstr("max-sesions"));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace lethe
