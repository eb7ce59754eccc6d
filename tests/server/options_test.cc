// Goal: the command line of lethe-server: values arrive, and what is wrong is named before anything is made.
// Method: command lines parsed in this process, with the error stream captured.
#include "server/options.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include <unistd.h>

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

TEST(ServerOptionsTest, LimitsAndOperationsArrive) {
  const ServerOptions limits = Parse({"--model",
                                      "a",
                                      "--prompt-tokens",
                                      "1",
                                      "--history-tokens",
                                      "2",
                                      "--deadline-seconds",
                                      "3",
                                      "--streams",
                                      "4",
                                      "--queue",
                                      "5",
                                      "--queue-seconds",
                                      "6",
                                      "--tenant-streams",
                                      "7",
                                      "--tenant-calls",
                                      "8",
                                      "--tenant-requests-per-second",
                                      "9"})
                                   .options;
  EXPECT_EQ(limits.limits.prompt_tokens, 1);
  EXPECT_EQ(limits.limits.history_tokens, 2);
  EXPECT_EQ(limits.limits.deadline_seconds, 3);
  EXPECT_EQ(limits.limits.streams, 4);
  EXPECT_EQ(limits.limits.queue, 5);
  EXPECT_EQ(limits.limits.queue_seconds, 6);
  EXPECT_EQ(limits.limits.tenant_streams, 7);
  EXPECT_EQ(limits.limits.tenant_calls, 8);
  EXPECT_EQ(limits.limits.tenant_requests_per_second, 9);
  const ServerOptions operations =
      Parse({"--model", "a", "--metrics", "0.0.0.0:9464", "--reflection", "--keepalive-seconds",
             "11", "--keepalive-timeout-seconds", "12", "--log-format", "json"})
          .options;
  EXPECT_EQ(operations.metrics_address, "0.0.0.0:9464");
  EXPECT_TRUE(operations.reflection);
  EXPECT_EQ(operations.keepalive_seconds, 11);
  EXPECT_EQ(operations.keepalive_timeout_seconds, 12);
  EXPECT_EQ(operations.log_format, LogFormat::kJson);
}

TEST(ServerOptionsTest, DefaultsFitTheMachine) {
  const ServerOptions options = Parse({"--model", "a"}).options;
  EXPECT_GE(options.resident_mib, 64);
  EXPECT_LE(options.resident_mib, 4096);
  EXPECT_LE(options.resident_mib * 2 << 20,
            int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
  EXPECT_LE(options.stored_input_mib, options.resident_mib / 16);
  EXPECT_EQ(options.limits.streams, Limits().streams);
  EXPECT_FALSE(options.reflection);
  EXPECT_EQ(options.metrics_address, "");
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
           {{"--model", "m", "--streams", "0"}, "--streams: "},
           {{"--model", "m", "--streams", "513"}, "--streams: "},
           {{"--model", "m", "--queue", "-1"}, "--queue: "},
           {{"--model", "m", "--tenant-calls", "0"}, "--tenant-calls: "},
           {{"--model", "m", "--prompt-tokens", "0"}, "--prompt-tokens: "},
           {{"--model", "m", "--deadline-seconds", "0"}, "--deadline-seconds: "},
           {{"--model", "m", "--metrics", "9464"}, "--metrics: want IPV4:PORT or localhost:PORT"},
           {{"--model", "m", "--log-format", "xml"}, "--log-format: "},
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

// Beyond loopback each of TLS, credentials and the edge is wanted, or waived by its own name.
TEST(ServerOptionsTest, ExposureIsRefusedUnlessEachFlagAllowsIt) {
  const std::vector<const char*> tls = {"--tls-cert", "c", "--tls-key", "k"};
  const std::vector<const char*> tokens = {"--tokens", "t"};
  const std::string hex(64, 'a');
  const std::vector<const char*> edge = {"--client-ca", "ca", "--edge-cert-sha256", hex.c_str()};
  const char* const plaintext = "--insecure-plaintext-beyond-loopback";
  const char* const anonymous = "--insecure-anonymous-beyond-loopback";
  const char* const direct = "--direct-beyond-loopback";
  const auto parse = [](const char* address, std::vector<std::vector<const char*>> groups) {
    std::vector<const char*> words = {"--no-model", "--listen", address};
    for (const auto& group : groups) words.insert(words.end(), group.begin(), group.end());
    return Parse(words);
  };
  for (const char* loopback : {"127.0.0.1:0", "127.9.9.9:1", "[::1]:0", "localhost:0"}) {
    EXPECT_EQ(parse(loopback, {}).code, std::nullopt) << loopback;
  }
  for (const char* beyond : {"0.0.0.0:0", "[::]:0", "10.0.0.1:1", "127.example.com:1",
                             "server.example:1", "localhost.example:1"}) {
    for (const auto& [groups, flag] :
         std::vector<std::pair<std::vector<std::vector<const char*>>, const char*>>{
             {{}, plaintext},
             {{tokens, {anonymous, direct}}, plaintext},
             {{tls}, anonymous},
             {{tls, {plaintext, direct}}, anonymous},
             {{tls, tokens}, direct},
             {{tls, tokens, {plaintext, anonymous}}, direct}}) {
      const Parsed parsed = parse(beyond, groups);
      EXPECT_EQ(parsed.code, 2) << beyond;
      EXPECT_THAT(parsed.err, HasSubstr(flag)) << beyond;
    }
    for (const std::vector<std::vector<const char*>>& groups :
         std::vector<std::vector<std::vector<const char*>>>{
             {{plaintext, anonymous, direct}}, {tls, tokens, {direct}}, {tls, tokens, edge}}) {
      const Parsed parsed = parse(beyond, groups);
      EXPECT_EQ(parsed.code, std::nullopt) << beyond << parsed.err;
    }
  }
}

TEST(ServerOptionsTest, IdentityOptionsWantEachOther) {
  const std::string hex(64, 'a');
  struct Line {
    std::vector<const char*> words;
    const char* text;
  };
  for (const Line& line : std::vector<Line>{
           {{"--tls-cert", "c"}, "--tls-cert wants --tls-key"},
           {{"--tls-key", "k"}, "--tls-key wants --tls-cert"},
           {{"--client-ca", "a", "--tokens", "t"}, "--client-ca wants --tls-cert"},
           {{"--tls-cert", "c", "--tls-key", "k", "--client-ca", "a"},
            "--client-ca wants --client-certificates (or --tokens)"},
           {{"--client-certificates", "c"}, "--client-certificates wants --client-ca"},
           {{"--edge-cert-sha256", hex.c_str()}, "--edge-cert-sha256 wants --client-ca"},
           {{"--edge-cert-sha256", "ab"}, "--edge-cert-sha256: want 64 hex digits"},
           {{"--max-connection-minutes", "-1"}, "--max-connection-minutes: "}}) {
    std::vector<const char*> words = {"--no-model"};
    words.insert(words.end(), line.words.begin(), line.words.end());
    const Parsed parsed = Parse(words);
    EXPECT_EQ(parsed.code, 2) << line.text;
    EXPECT_THAT(parsed.err, HasSubstr(line.text));
  }
}

TEST(ServerOptionsTest, AMisspeltNameInAConfigurationFileIsNoDefault) {
  const std::string path = ::testing::TempDir() + "lethe-server.conf";
  std::ofstream(path) << "model = a\nmax-sessions = 3\n";
  EXPECT_EQ(Parse({"--config", path.c_str()}).options.max_sessions, 3);
  std::ofstream(path) << "model = a\nmax-sesions = 3\n";
  const Parsed parsed = Parse({"--config", path.c_str()});
  EXPECT_EQ(parsed.code, 2);
  EXPECT_THAT(parsed.err, HasSubstr("lethe-server: --config: there is no option max-sesions (try"));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace lethe
