#include "server/rpc/malformed_request.h"

#include <string>

#include "absl/status/status.h"
#include <grpcpp/support/status.h>

#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/rpc/call_credentials.h"
#include "server/rpc/library_logs.h"
#include "server/rpc/status_conversion.h"

namespace lethe {
namespace {

using ::grpc::experimental::InterceptionHookPoints;

// One per call. gRPC makes it, parses the request and runs the first hook on one thread.
class MalformedRequestInterceptor final : public grpc::experimental::Interceptor {
 public:
  MalformedRequestInterceptor(const ServerCore* core, const grpc::ServerContextBase* context)
      : core_(core), context_(context) {
    TakeInvalidUtf8Field();
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      invalid_field_ = TakeInvalidUtf8Field();
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = methods->GetSendStatus();
      if (status.error_code() == grpc::StatusCode::INTERNAL && status.error_details().empty()) {
        methods->ModifySendStatus(ToGrpcStatus(Refusal()));
      }
    }
    methods->Proceed();
  }

 private:
  // No handler ran, so nobody has asked yet who calls: they learn no more than from a whole request.
  absl::Status Refusal() const {
    if (core_->authenticator != nullptr) {
      LETHE_RETURN_IF_ERROR(core_->authenticator->Authenticate(CredentialsOf(*context_)).status());
    }
    if (!invalid_field_.empty()) return InvalidFieldError(invalid_field_, "valid UTF-8");
    return WithErrorInfo(
        absl::InvalidArgumentError("the request is not a message of this method's request type"),
        {"MALFORMED_REQUEST", {}});
  }

  const ServerCore* const core_;
  const grpc::ServerContextBase* const context_;
  std::string invalid_field_;
};

class Factory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(const ServerCore* core) : core_(core) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new MalformedRequestInterceptor(core_, info->server_context());  // gRPC owns it
  }

 private:
  const ServerCore* const core_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeMalformedRequestInterceptor(const ServerCore* core) {
  return std::make_unique<Factory>(core);
}

}  // namespace lethe
