#include "client/channel.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/client_interceptor.h"
#include <arpa/inet.h>

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

using ::grpc::experimental::InterceptionHookPoints;

// gRPC's own call credentials refuse a channel without TLS, which on this machine is a server without TLS.
class TokenInterceptor final : public grpc::experimental::Interceptor {
 public:
  explicit TokenInterceptor(const std::string& value) : value_(value) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->insert({"authorization", value_});
    }
    methods->Proceed();
  }

 private:
  const std::string& value_;
};

class TokenFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenFactory(const std::string& token) : value_(absl::StrCat("Bearer ", token)) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* /*info*/) override {
    return new TokenInterceptor(value_);  // gRPC owns it
  }

 private:
  const std::string value_;
};

bool IsThisMachine(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  in_addr number{};
  if (inet_pton(AF_INET, host.c_str(), &number) == 1) return (ntohl(number.s_addr) >> 24) == 127;
  return host == "[::1]" || host == "localhost" || absl::StartsWith(address, "unix:");
}

absl::Status Check(const ConnectOptions& options) {
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    return absl::InvalidArgumentError("TLS: a client certificate and its key come together");
  }
  if (!options.tls_certificate.empty() && options.tls_ca.empty()) {
    return absl::InvalidArgumentError("TLS: a client certificate wants the server's CA too");
  }
  const bool is_line = std::all_of(options.token.begin(), options.token.end(),
                                   [](char c) { return c > ' ' && c <= '~'; });
  if (!is_line) return absl::InvalidArgumentError("token: want one line of visible ASCII");
  if (!options.token.empty() && options.tls_ca.empty() && !IsThisMachine(options.address)) {
    return absl::InvalidArgumentError(
        "token: goes to another machine over TLS alone; give the server's CA");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const ConnectOptions& options, const grpc::ChannelArguments& arguments) {
  LETHE_RETURN_IF_ERROR(Check(options));
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (!options.tls_ca.empty()) {
    credentials = grpc::SslCredentials({options.tls_ca, options.tls_key, options.tls_certificate});
  }
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (!options.token.empty()) interceptors.push_back(std::make_unique<TokenFactory>(options.token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      options.address, credentials, arguments, std::move(interceptors));
}

}  // namespace lethe::client
