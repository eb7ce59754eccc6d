#include "server/rpc/grpc_call.h"

#include <chrono>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/identity/method_access.h"
#include "server/rpc/call_credentials.h"
#include "server/rpc/call_report.h"
#include "server/rpc/status_conversion.h"
#include "server/session_registry/tenant_bytes.h"
#include "server/wiping/dead_stacks.h"

namespace lethe {
namespace {

using SystemClock = std::chrono::system_clock;

CallKind KindOf(absl::string_view method) {
  for (const char* stream : {"Generate", "ExportSession", "ImportSession"}) {
    if (method == stream) return CallKind::kStream;
  }
  for (const char* erasure : {"Forget", "ForgetSubject", "DeleteSession"}) {
    if (method == erasure) return CallKind::kErasure;
  }
  return CallKind::kUnary;
}

bool BringsInputs(absl::string_view method) {
  for (const char* brings : {"CreateSession", "CreateVectorSession", "ImportSession", "Append",
                             "AppendVectors", "Generate"}) {
    if (method == brings) return true;
  }
  return false;
}

}  // namespace

struct GrpcCall::Bell {
  Mutex mutex;
  grpc::ServerContext* context ABSL_GUARDED_BY(mutex) = nullptr;  // null once the call has ended
};

GrpcCall::GrpcCall(grpc::ServerContext* context, const ServerCore* core)
    : context_(context),
      core_(core),
      capped_(context->deadline() == SystemClock::time_point::max()),
      deadline_(capped_ ? SystemClock::now() + std::chrono::seconds(core->limits.deadline_seconds)
                        : context->deadline()),
      bell_(capped_ ? std::make_shared<Bell>() : nullptr) {
  if (bell_ == nullptr) return;
  {
    MutexLock lock(&bell_->mutex);
    bell_->context = context;
  }
  overdue_.Set(deadline_ + kDeadlineGrace, [bell = bell_](bool overdue) {
    MutexLock lock(&bell->mutex);
    if (overdue && bell->context != nullptr) bell->context->TryCancel();
  });
}

GrpcCall::~GrpcCall() {
  if (bell_ == nullptr) return;
  MutexLock lock(&bell_->mutex);
  bell_->context = nullptr;
}

absl::StatusOr<Principal> GrpcCall::Authenticate() const {
  if (core_->authenticator == nullptr) return LocalPrincipal();
  return core_->authenticator->Authenticate(CredentialsOf(*context_));
}

absl::Status GrpcCall::Admit(const char* method) {
  method_ = method;
  LETHE_ASSIGN_OR_RETURN(principal_, Authenticate());
  next_identity_look_.store(std::chrono::steady_clock::now() + core_->identity_interval);
  return CheckRole(method, principal_);
}

absl::Status GrpcCall::CheckStillAdmitted(SteadyTime now) const {
  if (core_->authenticator == nullptr || now < next_identity_look_.load()) return absl::OkStatus();
  LETHE_ASSIGN_OR_RETURN(const Principal principal, Authenticate());
  // The same credential may be another tenant's by now; the session that runs is not.
  if (principal.tenant != principal_.tenant) return UnauthenticatedError();
  LETHE_RETURN_IF_ERROR(CheckRole(method_, principal));
  next_identity_look_.store(now + core_->identity_interval);
  return absl::OkStatus();
}

absl::Status GrpcCall::Check() const {
  if (deadline_ <= SystemClock::now()) {
    if (!capped_) return absl::DeadlineExceededError("the call's deadline has passed");
    return WithErrorInfo(
        absl::DeadlineExceededError(
            absl::StrCat("a call without a deadline may take ", core_->limits.deadline_seconds,
                         " seconds (--deadline-seconds); set one for a longer call")),
        {"DEADLINE_CAP",
         {{"limit", "deadline-seconds"}, {"max", absl::StrCat(core_->limits.deadline_seconds)}}});
  }
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_.load(std::memory_order_relaxed)) return absl::OkStatus();
  // A cancelled call stays so, and every later look says so: next_look_ then stays in the past.
  if (context_->IsCancelled()) {
    if (stopping()) {
      return WithErrorInfo(absl::UnavailableError("the server is shutting down"),
                           {"SHUTTING_DOWN", {}});
    }
    return absl::CancelledError("the client went away");
  }
  LETHE_RETURN_IF_ERROR(CheckStillAdmitted(now));
  next_look_.store(now + kLookInterval, std::memory_order_relaxed);
  return absl::OkStatus();
}

namespace {

absl::Status HandleAdmitted(const char* method, const Call& call, const ServerCore& core,
                            const std::function<absl::Status(const Call&)>& handler) {
  const CallKind kind = KindOf(method);
  const auto arrival = std::chrono::steady_clock::now();
  LETHE_ASSIGN_OR_RETURN(const AdmittedCall admitted, core.admission->Admit(kind, call));
  if (kind == CallKind::kStream) {
    core.metrics->CountWait(std::chrono::duration_cast<std::chrono::microseconds>(
                                std::chrono::steady_clock::now() - arrival)
                                .count());
  }
  if (BringsInputs(method)) {
    LETHE_RETURN_IF_ERROR(
        CheckTenantBytes(core.sessions, call.principal().tenant, core.limits.tenant_mib));
  }
  return handler(call);
}

// Not part of Serve, whose frame stays when the stack below it is wiped.
__attribute__((noinline)) grpc::Status Handle(
    const char* method, grpc::ServerContext* context, const ServerCore* core,
    const std::function<absl::Status(const Call&)>& handler) {
  const CallReport report(method, context, core);
  GrpcCall call(context, core);
  absl::Status status = call.Check();
  if (status.ok()) status = call.Admit(method);
  if (status.ok()) status = HandleAdmitted(method, call, *core, handler);
  report.End(status);
  return ToGrpcStatus(status);
}

}  // namespace

grpc::Status Serve(const char* method, grpc::ServerContext* context, const ServerCore* core,
                   const std::function<absl::Status(const Call&)>& handler) {
  grpc::Status answer = Handle(method, context, core, handler);
  // While this thread waits for its next call, what the handler left would lie between the slots that gRPC's frames
  // use, where a later WipeDeadStacks does not reach it.
  WipeOwnDeadStack();
  return answer;
}

grpc::Status ServeErasing(const char* method, grpc::ServerContext* context, const ServerCore* core,
                          const std::function<absl::Status(const Call&)>& handler) {
  grpc::Status answer = Serve(method, context, core, handler);
  if (const absl::Status wiped = WipeDeadStacks(); !wiped.ok()) core->on_failure(wiped);
  return answer;
}

}  // namespace lethe
