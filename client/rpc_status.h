// StatusFromRpc: the absl::Status of a finished RPC, with the server's ErrorInfo as its payload.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   nothing; details that cannot be read are left out, code and message stay.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_RPC_STATUS_H_
#define LETHE_CLIENT_RPC_STATUS_H_

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace lethe::client {

absl::Status StatusFromRpc(const grpc::Status& status);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_RPC_STATUS_H_
