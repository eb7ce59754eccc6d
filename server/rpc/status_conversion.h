// ToGrpcStatus: an absl::Status as the client gets it, with an ErrorInfo detail.
//
// Equation:  none.
// Shapes:    details: serialised google.rpc.Status {code, message, details: [Any of
//            lethe.v1.ErrorInfo under type.googleapis.com/google.rpc.ErrorInfo]}, which gRPC sends
//            as grpc-status-details-bin.
// Units:     none.
// Requires:  none.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_STATUS_CONVERSION_H_
#define LETHE_SERVER_RPC_STATUS_CONVERSION_H_

#include "absl/status/status.h"
#include <grpcpp/support/status.h>

namespace lethe {

inline constexpr char kErrorDomain[] = "lethe.dev";

grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_STATUS_CONVERSION_H_
