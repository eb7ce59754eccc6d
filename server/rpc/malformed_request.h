// MakeMalformedRequestInterceptor: the answer to a request that protobuf cannot parse.
//
// gRPC parses before it calls a service and answers INTERNAL without a detail when that fails. But
// the fault is the caller's: a string field that is not UTF-8 (any language whose library does not
// check), or bytes that are no message of the request's type.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  TakeLibraryLogs was called, for the field's name.
// Rejects:   replaces that INTERNAL by INVALID_ARGUMENT: reason INVALID_FIELD with the field where
//            it is known to be text that is not UTF-8, else reason MALFORMED_REQUEST.
// Effects:   none on other calls: every status of a service carries a detail.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_MALFORMED_REQUEST_H_
#define LETHE_SERVER_RPC_MALFORMED_REQUEST_H_

#include <memory>

#include <grpcpp/support/server_interceptor.h>

#include "server/rpc/server_core.h"

namespace lethe {

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeMalformedRequestInterceptor(const ServerCore* core);

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_MALFORMED_REQUEST_H_
