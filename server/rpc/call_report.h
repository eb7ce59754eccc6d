// CallReport: what is told of a call: its metrics, its line in the log, and the trace that it belongs to.
//
// Equation:  none.
// Shapes:    the line: "Generate OK 1234 us", behind it " trace <32 digits>" when the client named a trace.
// Units:     microseconds.
// Requires:  context and core outlive the report; End is called once.
// Rejects:   none.
// Effects:   a valid `traceparent` of the client's is sent back in the initial metadata. End counts the call and logs it: at
//            level error when it failed with INTERNAL or DATA_LOSS, else at level debug. Never content.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_SERVER_RPC_CALL_REPORT_H_
#define LETHE_SERVER_RPC_CALL_REPORT_H_

#include <chrono>
#include <optional>

#include "absl/status/status.h"
#include <grpcpp/server_context.h>

#include "server/rpc/server_core.h"
#include "server/rpc/trace_context.h"

namespace lethe {

class CallReport {
 public:
  CallReport(const char* method, grpc::ServerContext* context, const ServerCore* core);
  void End(const absl::Status& status) const;

 private:
  const char* const method_;
  const ServerCore* const core_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<TraceContext> trace_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_CALL_REPORT_H_
