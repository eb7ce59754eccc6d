// ServeExport, ServeImport: SessionService's streaming calls.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  core outlives the call.
// Rejects:   INVALID_ARGUMENT, reason INVALID_FIELD; server/session_export.
// Effects:   as SessionService.ExportSession and ImportSession. What came in is overwritten.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_TRANSFER_CALLS_H_
#define LETHE_SERVER_RPC_TRANSFER_CALLS_H_

#include "absl/status/status.h"
#include <grpcpp/support/sync_stream.h>

#include "lethe/v1/session.grpc.pb.h"
#include "server/rpc/server_core.h"

namespace lethe {

absl::Status ServeExport(const v1::ExportSessionRequest& request, const Call& call,
                         ServerCore* core, grpc::ServerWriter<v1::ExportSessionResponse>* writer);

absl::Status ServeImport(const Call& call, ServerCore* core,
                         grpc::ServerReader<v1::ImportSessionRequest>* reader,
                         v1::ImportSessionResponse* response);

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_TRANSFER_CALLS_H_
