#include "tests/integration/identity_testing.h"

#include <cstdio>
#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "audit/crypto/sha256.h"
#include "kernels/base/check.h"

namespace lethe::testing {

std::string TokenLine(const std::string& token, const std::string& tenant, const std::string& roles,
                      const std::string& expires) {
  return absl::StrCat(tenant, " ", token, " ", roles, " ", expires, " ",
                      absl::BytesToHexString(audit::AsStringView(audit::Sha256Of(token))), "\n");
}

void ReplaceFile(const std::string& path, const std::string& text) {
  {
    std::ofstream file(path + ".new", std::ios::binary);
    file << text;
  }
  LETHE_CHECK(std::rename((path + ".new").c_str(), path.c_str()) == 0);
}

IdentityServer::IdentityServer() {
  for (const std::string tenant : {"a", "b"}) {
    for (const std::string role : {"user", "eraser", "auditor", "operator"}) {
      all_tokens += TokenLine(tenant + "-" + role, tenant, role);
    }
    all_tokens += TokenLine(tenant + "-all", tenant, "user,eraser,auditor,operator");
    all_tokens += TokenLine(tenant + "-auditor-2", tenant, "auditor");
    all_tokens += TokenLine(tenant + "-old", tenant, "user", "2020-01-01T00:00:00Z");
  }
  ReplaceFile(tokens_path, all_tokens + TokenLine("a-revoked", "a", "user"));
  core.trail = trail.trail;
  core.record_spki = trail.data->record_spki();
  LETHE_CHECK(core.models.Add(TinyModel()).ok());
  core.authenticator = Authenticator::Open({tokens_path, "", std::nullopt}).value();
  // Known to the server, and then not any more.
  LETHE_CHECK(core.authenticator->Authenticate({{"Bearer a-revoked"}, {}, std::nullopt}).ok());
  ReplaceFile(tokens_path, all_tokens);
  auto started = RpcServer::Start(&core, {"127.0.0.1:0", 8 << 20});
  LETHE_CHECK(started.ok());
  rpc = *std::move(started);
  channel = ConnectTo(rpc->address());
  stubs = std::make_unique<Stubs>(channel);
}

IdentityServer::~IdentityServer() { rpc->Shutdown(0); }

grpc::Status IdentityServer::Call(const std::string& method,
                                  const google::protobuf::Message& request,
                                  const CallMetadata& metadata,
                                  google::protobuf::Message* response) {
  return CallBytes(method, request.SerializeAsString(), metadata, response);
}

grpc::Status IdentityServer::CallBytes(const std::string& method, const std::string& bytes,
                                       const CallMetadata& metadata,
                                       google::protobuf::Message* response) {
  grpc::GenericStub stub(channel);
  Context context;
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer answer;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  grpc::Slice whole;
  if (status.ok() && response != nullptr && answer.DumpToSingleSlice(&whole).ok()) {
    LETHE_CHECK(response->ParseFromArray(whole.begin(), static_cast<int>(whole.size())));
  }
  return status;
}

std::string IdentityServer::NewSession(const std::string& token) {
  v1::CreateSessionResponse response;
  const grpc::Status status = Call("/lethe.v1.SessionService/CreateSession",
                                   v1::CreateSessionRequest(), With(token), &response);
  LETHE_CHECK(status.ok());
  return response.session().session_id();
}

}  // namespace lethe::testing
