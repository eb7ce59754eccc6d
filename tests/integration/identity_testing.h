// IdentityServer: a whole server in this process that asks for credentials, with tokens of two tenants.
//
// Tenants a and b; for each role a token of its own ("a-user"), a second auditor ("a-auditor-2"), all roles in one ("a-all"), and one that has
// expired ("a-old").
// A token is its name, which no real one would be.
//
// Threads: compatible.
#ifndef LETHE_TESTS_INTEGRATION_IDENTITY_TESTING_H_
#define LETHE_TESTS_INTEGRATION_IDENTITY_TESTING_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include "tests/integration/server_testing.h"

namespace lethe::testing {

using CallMetadata = std::vector<std::pair<std::string, std::string>>;

std::string TokenLine(const std::string& token, const std::string& tenant, const std::string& roles,
                      const std::string& expires = "never");
// The file's new content, in one step.
void ReplaceFile(const std::string& path, const std::string& text);

struct IdentityServer {
  IdentityServer();
  ~IdentityServer();

  // A unary call, or the first and last message of a stream's call.
  grpc::Status Call(const std::string& method, const google::protobuf::Message& request,
                    const CallMetadata& metadata, google::protobuf::Message* response = nullptr);
  grpc::Status CallBytes(const std::string& method, const std::string& bytes,
                         const CallMetadata& metadata,
                         google::protobuf::Message* response = nullptr);
  static CallMetadata With(const std::string& token) {
    return {{"authorization", "Bearer " + token}};
  }
  std::string NewSession(const std::string& token);

  TempDirectory directory;
  std::string tokens_path = directory.path() + "/tokens";
  std::string all_tokens;
  TestTrail trail;
  ServerCore core{2, 64};
  std::unique_ptr<RpcServer> rpc;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<Stubs> stubs;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_INTEGRATION_IDENTITY_TESTING_H_
