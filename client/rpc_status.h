// StatusFromRpc: the absl::Status of a finished RPC, with the server's ErrorInfo as its payload.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   nothing; details that cannot be read are left out, code and message stay.
// Effects:   none. With the request, a status whose call may have taken effect gets the payload
//            kOutcomeUnknownType (client.h): the request has a request_id, so it changes something,
//            and neither did the server refuse it nor gRPC fail to connect.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_RPC_STATUS_H_
#define LETHE_CLIENT_RPC_STATUS_H_

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/status.h"

namespace lethe::client {

absl::Status StatusFromRpc(const grpc::Status& status);
absl::Status StatusFromRpc(const grpc::Status& status, const google::protobuf::Message& request);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_RPC_STATUS_H_
