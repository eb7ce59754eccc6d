// TestServer, ServerTest: a whole server in this process on a free port, with stubs of every service.
//
// Threads: safe after construction.
#ifndef LETHE_TESTS_INTEGRATION_SERVER_TESTING_H_
#define LETHE_TESTS_INTEGRATION_SERVER_TESTING_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "lethe/v1/audit.grpc.pb.h"
#include "lethe/v1/certification.grpc.pb.h"
#include "lethe/v1/forgetting.grpc.pb.h"
#include "lethe/v1/generation.grpc.pb.h"
#include "lethe/v1/memory.grpc.pb.h"
#include "lethe/v1/model.grpc.pb.h"
#include "lethe/v1/session.grpc.pb.h"
#include "server/rpc/rpc_server.h"
#include "tests/server/serving_testing.h"

namespace lethe::testing {

struct Stubs {
  explicit Stubs(const std::shared_ptr<grpc::Channel>& channel);
  std::unique_ptr<v1::SessionService::Stub> session;
  std::unique_ptr<v1::GenerationService::Stub> generation;
  std::unique_ptr<v1::ForgettingService::Stub> forgetting;
  std::unique_ptr<v1::CertificationService::Stub> certification;
  std::unique_ptr<v1::AuditService::Stub> audit;
  std::unique_ptr<v1::ModelService::Stub> model;
  std::unique_ptr<v1::MemoryService::Stub> memory;
};

std::shared_ptr<grpc::Channel> ConnectTo(const std::string& address);

struct TestServer {
  explicit TestServer(const Limits& limits = {}, RpcOptions options = {"127.0.0.1:0"});
  ~TestServer();

  TestTrail trail;
  ServerCore core{2, 8};
  std::unique_ptr<RpcServer> rpc;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<Stubs> stubs;
};

// A context with a deadline that no test should reach.
class Context : public grpc::ClientContext {
 public:
  Context();
};

// A server with one session.
class ServerTest : public ::testing::Test {
 protected:
  ServerTest() : session_id_(CreateSession()) {}

  std::string CreateSession();
  // The bytes of the session's state digest.
  std::string Digest();
  // A unary call with these request bytes, whatever they are; the reply's bytes if it is OK.
  grpc::Status CallRaw(const std::string& method, const std::string& bytes, std::string* reply);

  TestServer server_;
  Stubs& stubs_ = *server_.stubs;
  std::string session_id_;
};

// The one detail of an error.
v1::ErrorInfo DetailOf(const grpc::Status& status);

// The error has this code and reason, and its metadata names this field (empty: none).
MATCHER_P3(IsError, code, reason, field, "is the named error") {
  const v1::ErrorInfo info = DetailOf(arg);
  *result_listener << "code " << arg.error_code() << ", reason " << info.reason() << ", message \""
                   << arg.error_message() << "\"";
  const auto found = info.metadata().find("field");
  const std::string named = found == info.metadata().end() ? "" : found->second;
  return arg.error_code() == code && info.reason() == reason && info.domain() == "lethe.dev" &&
         named == std::string(field);
}

}  // namespace lethe::testing

#define ASSERT_RPC_OK(expr)                                     \
  do {                                                          \
    const grpc::Status rpc_status = (expr);                     \
    ASSERT_TRUE(rpc_status.ok()) << rpc_status.error_message(); \
  } while (false)

#endif  // LETHE_TESTS_INTEGRATION_SERVER_TESTING_H_
