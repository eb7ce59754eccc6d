// Goal: what an operator has beside the API: metrics that Prometheus' own parser reads and that hold nothing of a client's, a log as
// JSON with the caller's trace, readiness, reflection where it is wanted, a check that changes nothing.
// Method: the program against a tiny model on disk; random markers in every field that a client may fill.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <nlohmann/json.hpp>

#include "tests/integration/server_program.h"
#include "tests/integration/server_testing.h"
#include "tests/testing/http_get.h"

namespace lethe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kMarker[] = "MARKER-7f3a";
constexpr char kTraceId[] = "0af7651916cd43dd8448eb211c80319c";

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class ServerOperationsTest : public ::testing::Test {
 protected:
  ServerOperationsTest() { WriteTinyModel(model_, "tiny"); }

  std::vector<std::string> Arguments(const std::vector<std::string>& more,
                                     const std::string& listen = "127.0.0.1:0") const {
    std::vector<std::string> arguments = {"--model", model_, "--data", data_, "--listen", listen};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  // What --check says, and its exit status.
  std::pair<int, std::string> Check(const std::vector<std::string>& more,
                                    const std::string& listen = "127.0.0.1:0") const {
    std::vector<std::string> arguments = Arguments(more, listen);
    arguments.emplace_back("--check");
    const std::string log = directory_.path() + "/check";
    std::filesystem::remove(log);
    Program program(arguments, log);
    std::string out;
    for (std::string line; !(line = program.ReadLine()).empty();) out += line + "\n";
    const int code = program.Wait();
    return {code, out + ReadText(log)};
  }

  TempDirectory directory_;
  const std::string model_ = directory_.path() + "/model";
  const std::string data_ = directory_.path() + "/data";
  const std::string log_ = directory_.path() + "/stderr";
};

// A story with a marker in every field; returns the session.
std::string UseEverything(const Stubs& stubs) {
  Context create_context;
  v1::CreateSessionRequest create;
  create.set_display_name(kMarker);
  create.set_request_id(kMarker);
  v1::CreateSessionResponse created;
  EXPECT_TRUE(stubs.session->CreateSession(&create_context, create, &created).ok());
  const std::string session = created.session().session_id();
  Context append_context;
  v1::AppendRequest append;
  append.set_session_id(session);
  append.mutable_input()->set_text(kMarker);
  append.set_subject(kMarker);
  v1::AppendResponse appended;
  EXPECT_TRUE(stubs.session->Append(&append_context, append, &appended).ok());
  Context stream_context;
  stream_context.AddMetadata("traceparent", absl::StrCat("00-", kTraceId, "-b7ad6b7169203331-01"));
  stream_context.AddMetadata("x-secret", kMarker);
  v1::GenerateRequest generate;
  generate.set_session_id(session);
  generate.mutable_prompt()->set_text("prompt");
  generate.mutable_output()->set_max_tokens(5);
  generate.mutable_output()->set_ignore_end_of_text(true);
  generate.mutable_output()->add_stop(kMarker);
  const auto reader = stubs.generation->Generate(&stream_context, generate);
  for (v1::GenerateResponse event; reader->Read(&event);) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  Context forget_context;
  v1::ForgetRequest forget;
  forget.set_session_id(session);
  forget.mutable_selection()->set_subject(kMarker);
  forget.set_derived_policy(v1::DERIVED_POLICY_FORGET_DERIVED);
  v1::ForgetResponse forgot;
  EXPECT_TRUE(stubs.forgetting->Forget(&forget_context, forget, &forgot).ok());
  Context bad_context;
  append.set_subject(std::string(200, 'x') + kMarker);
  EXPECT_FALSE(stubs.session->Append(&bad_context, append, &appended).ok());
  return session;
}

// Prometheus' own parser for Python reads the page, and says how many families it has.
int FamiliesByPrometheus(const std::string& page, const std::string& path) {
  std::ofstream(path) << page;
  const std::string script =
      "import sys\\nfrom prometheus_client.parser import text_string_to_metric_families as p\\n"
      "print(len(list(p(open(sys.argv[1]).read()))))";
  const std::string command =
      absl::StrCat("/usr/bin/python3 -c \"$(printf '", script, "')\" ", path);
  FILE* pipe = popen(command.c_str(), "r");
  int families = 0;
  EXPECT_EQ(std::fscanf(pipe, "%d", &families), 1);
  EXPECT_EQ(pclose(pipe), 0);
  return families;
}

TEST_F(ServerOperationsTest, MetricsAndLogTellWhatHappenedAndNothingOfAClients) {
  Program program(Arguments({"--metrics", "127.0.0.1:0", "--log-format", "json", "--log-level",
                             "debug", "--drain-seconds", "1"}),
                  log_);
  const Stubs stubs(ConnectTo(program.ReadAddress()));
  program.ReadLine();  // the trust file
  const std::string url = program.ReadLine();
  ASSERT_THAT(url, StartsWith("metrics: http://127.0.0.1:"));
  const std::string address = url.substr(16, url.rfind('/') - 16);
  const std::string session = UseEverything(stubs);
  EXPECT_THAT(HttpGet(address, "/readyz"), StartsWith("HTTP/1.0 200 "));
  const std::string answer = HttpGet(address, "/metrics");
  const std::string page = answer.substr(answer.find("\r\n\r\n") + 4);
  for (const char* line :
       {"lethe_ready 1", "lethe_sessions 1", "lethe_resident_sessions 1",
        "lethe_generated_tokens_total 5", "lethe_input_tokens_total 17", "lethe_forgets_total 1",
        "lethe_rpc_duration_seconds_count{method=\"Generate\",code=\"OK\"} 1",
        "lethe_rpc_duration_seconds_count{method=\"Append\",code=\"INVALID_ARGUMENT\"} 1",
        "lethe_running_calls 0", "lethe_audit_log_leaves 1", "lethe_audit_log_frozen 0",
        "lethe_slow_canonical_solves_total "}) {
    EXPECT_THAT(page, HasSubstr(absl::StrCat("\n", line))) << line;
  }
  EXPECT_GE(FamiliesByPrometheus(page, directory_.path() + "/page"), 30);
  for (const std::string& secret : {std::string(kMarker), session, std::string("tiny")}) {
    EXPECT_THAT(page, Not(HasSubstr(secret))) << secret;
  }
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait(), 0);
  const std::string log = ReadText(log_);
  EXPECT_THAT(log, Not(HasSubstr(kMarker)));
  bool has_trace = false;
  for (const absl::string_view line : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    const nlohmann::json object = nlohmann::json::parse(std::string(line));
    EXPECT_TRUE(object.contains("time") && object.contains("level") && object.contains("message"));
    if (object.value("trace_id", "") != kTraceId) continue;
    has_trace = true;
    EXPECT_EQ(object["method"], "Generate");
    EXPECT_EQ(object["code"], "OK");
  }
  EXPECT_TRUE(has_trace);
}

TEST_F(ServerOperationsTest, ReflectionIsThereWhenItIsAskedFor) {
  Program program(Arguments({"--reflection"}), log_);
  const auto channel = ConnectTo(program.ReadAddress());
  grpc::GenericStub stub(channel);
  Context context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  void* tag = nullptr;
  bool ok = false;
  call->StartCall(nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  const grpc::Slice slice(std::string("\x3A\x01*"));  // list_services = "*"
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  grpc::ByteBuffer reply;
  call->Read(&reply, nullptr);
  ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  grpc::Slice dumped;
  ASSERT_TRUE(reply.DumpToSingleSlice(&dumped).ok());
  const std::string text(reinterpret_cast<const char*>(dumped.begin()), dumped.size());
  EXPECT_NE(text.find("lethe.v1.GenerationService"), std::string::npos);
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  queue.Next(&tag, &ok);
}

TEST_F(ServerOperationsTest, ACheckMakesNothingAndNamesWhatWouldNotDo) {
  auto [code, text] = Check({});
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("the configuration is valid"));
  EXPECT_FALSE(std::filesystem::exists(data_));
  std::tie(code, text) = Check({"--model", directory_.path()});
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, HasSubstr(directory_.path()));
  EXPECT_FALSE(std::filesystem::exists(data_));
  std::ofstream(directory_.path() + "/file") << "x";
  std::tie(code, text) = Check({"--erasure-ledger", directory_.path() + "/file/ledger"});
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, HasSubstr("--erasure-ledger: "));
  std::tie(code, text) = Check({"--resident-mib", "16777216"});
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, HasSubstr("--resident-mib: want at most the machine's memory"));
  EXPECT_EQ(Check({"--queue", "513"}).first, 2);
  // In a file too, and what is misspelt there.
  const std::string config = directory_.path() + "/server.toml";
  for (const char* line : {"queue = 513", "queue-second = 3", "metrics = \"9464\""}) {
    std::ofstream(config) << line << "\n";
    std::tie(code, text) = Check({"--config", config});
    EXPECT_EQ(code, 2) << line;
    EXPECT_THAT(text, HasSubstr(std::string(line).substr(0, 5))) << line;
  }
  Program program(Arguments({"--metrics", "127.0.0.1:0"}), log_);
  const std::string address = program.ReadAddress();
  program.ReadLine();
  const std::string url = program.ReadLine();
  const std::string metrics = url.substr(16, url.rfind('/') - 16);
  std::tie(code, text) = Check({}, address);
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, HasSubstr("--listen: "));
  std::tie(code, text) = Check({"--metrics", metrics});
  EXPECT_EQ(code, 1);
  EXPECT_THAT(text, HasSubstr("--metrics: "));
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait(), 0);
  std::tie(code, text) = Check({});
  EXPECT_EQ(code, 0) << text;
  EXPECT_THAT(text, HasSubstr("0 sessions, 0 damaged"));
}

}  // namespace
}  // namespace lethe::testing
