// GrpcCall, Serve, ServeErasing: one RPC as the inner layers see it, and the frame around every handler.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  context and core outlive the call.
// Rejects:   Serve: UNAUTHENTICATED and PERMISSION_DENIED (server/identity) before the handler, when the core has an
//            authenticator; each call by what it brings itself; then what CallAdmission::Admit rejects. Check: UNAVAILABLE, reason
//            SHUTTING_DOWN, when the server's end cancels the call; CANCELLED, DEADLINE_EXCEEDED (the deadline is looked at
//            first). A client that sets no deadline gets one of --deadline-seconds, reason DEADLINE_CAP; kDeadlineGrace behind
//            it the call is cancelled, also one that waits for a client that does not read. gRPC is asked
//            for a cancellation at most every kLookInterval: asking polls its queue, which costs
//            as much as a fifth of a lethe-tiny token. A call that runs for longer than core->identity_interval is
//            authenticated again that often: what was revoked meanwhile ends it as it would refuse the next call.
// Effects:   Serve reports the call (call_report.h).
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_GRPC_CALL_H_
#define LETHE_SERVER_RPC_GRPC_CALL_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include "server/rpc/server_core.h"
#include "server/scheduler/call.h"

namespace lethe {

class GrpcCall : public Call {
 public:
  GrpcCall(grpc::ServerContext* context, const ServerCore* core);
  ~GrpcCall() override;
  GrpcCall(const GrpcCall&) = delete;
  GrpcCall& operator=(const GrpcCall&) = delete;
  // Who calls, once and before anything else, and whether they may.
  absl::Status Admit(const char* method);
  absl::Status Check() const override;
  static constexpr std::chrono::milliseconds kLookInterval{5};
  static constexpr std::chrono::seconds kDeadlineGrace{2};
  bool stopping() const override { return core_->stopping.load(std::memory_order_relaxed); }
  const Principal& principal() const override { return principal_; }

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  absl::StatusOr<Principal> Authenticate() const;
  absl::Status CheckStillAdmitted(SteadyTime now) const;

  const grpc::ServerContext* const context_;
  const ServerCore* const core_;
  const char* method_ = "";
  Principal principal_;
  const bool capped_;  // the deadline is ours
  const std::chrono::system_clock::time_point deadline_;
  // The alarm may ring after the call has ended.
  struct Bell;
  const std::shared_ptr<Bell> bell_;
  grpc::Alarm overdue_;
  // When gRPC is asked next; written by whoever asks, so two threads may ask at once.
  mutable std::atomic<SteadyTime> next_look_{};
  mutable std::atomic<SteadyTime> next_identity_look_{SteadyTime::max()};
};

grpc::Status Serve(const char* method, grpc::ServerContext* context, const ServerCore* core,
                   const std::function<absl::Status(const Call&)>& handler);

// Serve for a call that erases: before it is answered, what the handlers of earlier calls, and of this one, left on the
// stacks of the server's threads is wiped too (server/wiping). Ends the process when a thread cannot be reached.
grpc::Status ServeErasing(const char* method, grpc::ServerContext* context, const ServerCore* core,
                          const std::function<absl::Status(const Call&)>& handler);

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_GRPC_CALL_H_
