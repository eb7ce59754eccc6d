#include "server/rpc/grpc_call.h"

#include <chrono>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/diagnostics/log.h"
#include "server/error/error_info.h"
#include "server/identity/method_access.h"
#include "server/rpc/call_credentials.h"
#include "server/rpc/status_conversion.h"
#include "server/wiping/dead_stacks.h"

namespace lethe {

absl::Status GrpcCall::Admit(const char* method) {
  if (core_->authenticator == nullptr) {
    principal_ = LocalPrincipal();
  } else {
    LETHE_ASSIGN_OR_RETURN(principal_,
                           core_->authenticator->Authenticate(CredentialsOf(*context_)));
  }
  return CheckRole(method, principal_);
}

absl::Status GrpcCall::Check() const {
  if (context_->deadline() <= std::chrono::system_clock::now()) {
    return absl::DeadlineExceededError("the call's deadline has passed");
  }
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_.load(std::memory_order_relaxed)) return absl::OkStatus();
  // A cancelled call stays so, and every later look says so: next_look_ then stays in the past.
  if (context_->IsCancelled()) return absl::CancelledError("the client went away");
  next_look_.store(now + kLookInterval, std::memory_order_relaxed);
  return absl::OkStatus();
}

namespace {

// Not part of Serve, whose frame stays when the stack below it is wiped.
__attribute__((noinline)) grpc::Status Handle(
    const char* method, const grpc::ServerContext* context, const ServerCore* core,
    const std::function<absl::Status(const Call&)>& handler) {
  const auto start = std::chrono::steady_clock::now();
  GrpcCall call(context, core);
  absl::Status status = call.Check();
  if (status.ok()) status = call.Admit(method);
  if (status.ok()) status = handler(call);
  const auto duration = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - start);
  const std::string line = absl::StrCat(method, " ", absl::StatusCodeToString(status.code()), " ",
                                        duration.count(), " us");
  if (status.code() == absl::StatusCode::kInternal ||
      status.code() == absl::StatusCode::kDataLoss) {
    LogError(absl::StrCat(line, ": ", status.message()));
  } else {
    LogDebug(line);
  }
  return ToGrpcStatus(status);
}

}  // namespace

grpc::Status Serve(const char* method, const grpc::ServerContext* context, const ServerCore* core,
                   const std::function<absl::Status(const Call&)>& handler) {
  grpc::Status answer = Handle(method, context, core, handler);
  // While this thread waits for its next call, what the handler left would lie between the slots that gRPC's frames
  // use, where a later WipeDeadStacks does not reach it.
  WipeOwnDeadStack();
  return answer;
}

grpc::Status ServeErasing(const char* method, const grpc::ServerContext* context,
                          const ServerCore* core,
                          const std::function<absl::Status(const Call&)>& handler) {
  grpc::Status answer = Serve(method, context, core, handler);
  if (const absl::Status wiped = WipeDeadStacks(); !wiped.ok()) core->on_failure(wiped);
  return answer;
}

}  // namespace lethe
