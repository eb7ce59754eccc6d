// Goal: the program serves TLS and mutual TLS on a real socket: who has no credential, another CA's certificate or no TLS gets
// nothing; certificates, CA and credential files change without a restart; only the edge's word counts for who its clients are.
// Method: certificates by the program openssl; lethe-server as its own process without a model; the C++ client, `lethe` and
// bare stubs against it. A user is admitted to CreateVectorSession (INVALID_ARGUMENT for the empty request), an auditor is not
// (PERMISSION_DENIED): so each call's answer says who it was taken for.
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/commands/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include "lethe/v1/memory.grpc.pb.h"
#include "tests/audit/temp_directory.h"
#include "tests/integration/server_program.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

using client::Client;
using client::ConnectOptions;

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Standard output of a shell command.
std::string OutputOf(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe))
    text.push_back(static_cast<char>(c));
  pclose(pipe);
  return text;
}

void Replace(const std::string& path, const std::string& text) {
  {
    std::ofstream file(path + ".new", std::ios::binary);
    file << text;
  }
  ASSERT_EQ(std::rename((path + ".new").c_str(), path.c_str()), 0);
}

// What CreateVectorSession answers tells who the call was taken for.
constexpr auto kUser = absl::StatusCode::kInvalidArgument;
constexpr auto kAuditor = absl::StatusCode::kPermissionDenied;
constexpr auto kNobody = absl::StatusCode::kUnauthenticated;
constexpr auto kNoConnection = absl::StatusCode::kUnavailable;

class IdentityTlsTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return directory_.path() + "/" + name; }
  std::string Text(const std::string& name) const { return ReadText(Path(name)); }

  void MakeCa(const std::string& name) const { Make(name, ""); }
  // NAME.pem and NAME.key, of the CA; for 127.0.0.1.
  void MakeCertificate(const std::string& name, const std::string& ca) const {
    Make(name, absl::StrCat(" -CA ", Path(ca + ".pem"), " -CAkey ", Path(ca + ".key"),
                            " -addext basicConstraints=CA:FALSE"
                            " -addext subjectAltName=IP:127.0.0.1"));
  }
  std::string Fingerprint(const std::string& name) const {
    return OutputOf(
               absl::StrCat("openssl x509 -in ", Path(name + ".pem"), " -outform DER | sha256sum"))
        .substr(0, 64);
  }

  // Tokens: "user-token" is a user's; certificates: those named, auditors'.
  void WriteCredentials(const std::vector<std::string>& certificates) const {
    const std::string hash = OutputOf("printf user-token | sha256sum").substr(0, 64);
    Replace(Path("tokens"), absl::StrCat("clinic anna user never ", hash, "\n"));
    std::string lines;
    for (const std::string& name : certificates) {
      absl::StrAppend(&lines, "clinic ", name, " auditor never ", Fingerprint(name), "\n");
    }
    Replace(Path("certificates"), lines);
  }

  void Start(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "--no-model",        "--data",      Path("data"),       "--listen",
        "127.0.0.1:0",       "--tls-cert",  Path("server.pem"), "--tls-key",
        Path("server.key"),  "--client-ca", Path("ca.pem"),     "--client-certificates",
        Path("certificates")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    program_ = std::make_unique<Program>(arguments, Path("errors"));
    address_ = program_->ReadAddress();
    ASSERT_FALSE(address_.empty()) << Text("errors");
  }

  ConnectOptions Options(const std::string& certificate, const std::string& token,
                         const std::string& ca = "ca") const {
    ConnectOptions options;
    options.address = address_;
    options.timeout_s = 60;
    if (!ca.empty()) options.tls_ca = Text(ca + ".pem");
    if (!certificate.empty()) {
      options.tls_certificate = Text(certificate + ".pem");
      options.tls_key = Text(certificate + ".key");
    }
    options.token = token;
    return options;
  }
  static absl::StatusCode Ask(Client* client) {
    return client->CreateVectorSession({}).status().code();
  }
  absl::StatusCode Ask(const ConnectOptions& options) const {
    const auto client = Client::Connect(options);
    EXPECT_TRUE(client.ok()) << client.status();
    return Ask(client->get());
  }
  // With metadata of the caller's, on a connection of that certificate's.
  grpc::StatusCode AskAs(const std::string& certificate,
                         const std::vector<std::pair<std::string, std::string>>& metadata) const {
    const auto credentials = grpc::SslCredentials(
        {Text("ca.pem"), Text(certificate + ".key"), Text(certificate + ".pem")});
    const auto stub = v1::MemoryService::NewStub(grpc::CreateChannel(address_, credentials));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
    v1::CreateVectorSessionResponse response;
    return stub->CreateVectorSession(&context, {}, &response).error_code();
  }

  audit::TempDirectory directory_;
  std::unique_ptr<Program> program_;
  std::string address_;

 private:
  void Make(const std::string& name, const std::string& options) const {
    const std::string command = absl::StrCat(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
        "-days 2 -subj /CN=",
        name, " -keyout ", Path(name + ".key"), " -out ", Path(name + ".pem"), options, " 2>",
        Path("openssl"));
    ASSERT_EQ(std::system(command.c_str()), 0) << Text("openssl");
  }
};

TEST_F(IdentityTlsTest, EachConnectionIsWhoItProvesToBe) {
  MakeCa("ca");
  MakeCa("other");
  MakeCertificate("server", "ca");
  MakeCertificate("ben", "ca");
  MakeCertificate("unknown", "ca");
  MakeCertificate("foreign", "other");
  WriteCredentials({"ben"});
  ASSERT_NO_FATAL_FAILURE(Start({"--tokens", Path("tokens")}));
  EXPECT_EQ(Ask(Options("", "")), kNobody);
  EXPECT_EQ(Ask(Options("", "user-token")), kUser);
  EXPECT_EQ(Ask(Options("", "no-token")), kNobody);
  EXPECT_EQ(Ask(Options("ben", "")), kAuditor);
  EXPECT_EQ(Ask(Options("ben", "user-token")), kUser) << "a token decides where there is one";
  EXPECT_EQ(Ask(Options("unknown", "")), kNobody);
  EXPECT_EQ(Ask(Options("foreign", "")), kNoConnection);
  EXPECT_EQ(Ask(Options("", "user-token", "other")), kNoConnection) << "not the server's CA";
  EXPECT_EQ(Ask(Options("", "user-token", "")), kNoConnection) << "plain text";
  // What a client claims about its certificate, and no edge has said.
  EXPECT_EQ(AskAs("unknown", {{"x-lethe-client-cert-sha256", Fingerprint("ben")}}),
            grpc::StatusCode::UNAUTHENTICATED);
  // Older than TLS 1.2.
  const std::string old = OutputOf(absl::StrCat(
      "openssl s_client -connect ", address_, " -tls1_1 -cipher ALL:@SECLEVEL=0 </dev/null 2>&1"));
  EXPECT_THAT(old, ::testing::HasSubstr("Cipher is (NONE)"));
  const std::string present =
      OutputOf(absl::StrCat("openssl s_client -connect ", address_, " -alpn h2 </dev/null 2>&1"));
  EXPECT_THAT(present, ::testing::HasSubstr("TLSv1.3"));

  // The program `lethe`, by options and by environment.
  std::ofstream(Path("token")) << "user-token\n";
  std::istringstream in;
  std::ostringstream out;
  std::ostringstream err;
  const client::Io io{.in = in, .out = out, .err = err};
  EXPECT_EQ(client::RunProgram({"session", "list", "--server", address_, "--tls-ca", Path("ca.pem"),
                                "--token-file", Path("token")},
                               io),
            0)
      << err.str();
  EXPECT_EQ(client::RunProgram({"session", "list", "--server", address_, "--tls-ca", Path("ca.pem"),
                                "--tls-cert", Path("ben.pem"), "--tls-key", Path("ben.key")},
                               io),
            0)
      << err.str();
  EXPECT_EQ(
      client::RunProgram({"session", "list", "--server", address_, "--tls-ca", Path("ca.pem")}, io),
      1);
  EXPECT_THAT(err.str(), ::testing::HasSubstr("no valid credential"));
}

TEST_F(IdentityTlsTest, FilesChangeWithoutARestart) {
  MakeCa("ca");
  MakeCa("next-ca");
  MakeCertificate("server", "ca");
  MakeCertificate("next", "next-ca");
  MakeCertificate("ben", "ca");
  MakeCertificate("cleo", "next-ca");
  WriteCredentials({"ben"});
  ASSERT_NO_FATAL_FAILURE(Start({"--tokens", Path("tokens")}));
  ASSERT_OK_AND_ASSIGN(const auto ben, Client::Connect(Options("ben", "")));
  ASSERT_OK_AND_ASSIGN(const auto anna, Client::Connect(Options("", "user-token")));
  EXPECT_EQ(Ask(ben.get()), kAuditor);
  EXPECT_EQ(Ask(anna.get()), kUser);
  EXPECT_EQ(Ask(Options("cleo", "")), kNoConnection);

  // Revoked: on the connections that stand, from the next call on.
  WriteCredentials({"cleo"});
  Replace(Path("tokens"), "# nobody\n");
  EXPECT_EQ(Ask(ben.get()), kNobody);
  EXPECT_EQ(Ask(anna.get()), kNobody);
  WriteCredentials({"cleo", "ben"});
  EXPECT_EQ(Ask(ben.get()), kAuditor);
  EXPECT_EQ(Ask(anna.get()), kUser);

  // A certificate whose key is not there yet, and garbage, are not taken.
  const std::string old_ca = Text("ca.pem");
  Replace(Path("server.pem"), Text("next.pem"));
  EXPECT_EQ(Ask(Options("", "user-token")), kUser);
  Replace(Path("ca.pem"), "no certificate");
  {
    ConnectOptions options = Options("ben", "");
    options.tls_ca = old_ca;
    EXPECT_EQ(Ask(options), kAuditor);
  }
  EXPECT_THAT(Text("errors"), ::testing::HasSubstr("the private key is not the certificate's"));
  // Whole again: both the server's certificate and the CA of its clients are others.
  Replace(Path("server.key"), Text("next.key"));
  Replace(Path("ca.pem"), Text("next-ca.pem"));
  EXPECT_EQ(Ask(Options("cleo", "", "next-ca")), kAuditor);
  EXPECT_EQ(Ask(Options("ben", "", "next-ca")), kNoConnection);
  ConnectOptions options = Options("", "user-token");
  options.tls_ca = old_ca;
  EXPECT_EQ(Ask(options), kNoConnection);
}

TEST_F(IdentityTlsTest, OnlyTheEdgeSpeaksForOthers) {
  MakeCa("ca");
  MakeCertificate("server", "ca");
  MakeCertificate("edge", "ca");
  MakeCertificate("ben", "ca");
  WriteCredentials({"ben"});
  ASSERT_NO_FATAL_FAILURE(
      Start({"--tokens", Path("tokens"), "--edge-cert-sha256", Fingerprint("edge")}));
  const std::string key = "x-lethe-client-cert-sha256";
  EXPECT_EQ(Ask(Options("", "user-token")), kNoConnection)
      << "every connection shows a certificate";
  EXPECT_EQ(AskAs("edge", {}), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(AskAs("edge", {{key, ""}}), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(AskAs("edge", {{key, Fingerprint("ben")}}), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(AskAs("edge", {{key, Fingerprint("edge")}}), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(AskAs("edge", {{key, Fingerprint("ben")}, {"authorization", "Bearer user-token"}}),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(AskAs("ben", {}), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(IdentityTlsTest, AStartWithFilesThatDoNotFitIsRefused) {
  MakeCa("ca");
  MakeCertificate("server", "ca");
  MakeCertificate("ben", "ca");
  WriteCredentials({"ben"});
  struct Case {
    std::string file;
    std::string text;
    std::string message;
  };
  for (const Case& bad : std::vector<Case>{
           {"server.key", Text("ben.key"), "the private key is not the certificate's"},
           {"server.pem", "garbage", "--tls-cert"},
           {"ca.pem", "garbage", "--client-ca"},
           {"certificates", "clinic ben auditor never 00\n", "line 1: SHA256: want 64 hex digits"},
       }) {
    const std::string good = Text(bad.file);
    Replace(Path(bad.file), bad.text);
    Program program({"--no-model", "--data", Path("data"), "--listen", "127.0.0.1:0", "--tls-cert",
                     Path("server.pem"), "--tls-key", Path("server.key"), "--client-ca",
                     Path("ca.pem"), "--client-certificates", Path("certificates")},
                    Path("errors"));
    EXPECT_EQ(program.ReadAddress(), "");
    EXPECT_EQ(program.Wait(), 1);
    EXPECT_THAT(Text("errors"), ::testing::HasSubstr(bad.message));
    Replace(Path(bad.file), good);
  }
}

}  // namespace
}  // namespace lethe::testing
