// CredentialsOf: what a gRPC call brings to be authenticated by (server/identity/authenticator.h).
//
// Equation:  the certificate's digest is the SHA-256 of its DER, as `openssl x509 -outform DER | sha256sum` gives it.
// Shapes:    none.
// Units:     none.
// Requires:  context outlives the result.
// Rejects:   none. A certificate counts only where TLS has verified it.
// Effects:   none: nothing is written into the connection's auth context, which later calls on it share.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_CALL_CREDENTIALS_H_
#define LETHE_SERVER_RPC_CALL_CREDENTIALS_H_

#include <grpcpp/server_context.h>

#include "server/identity/authenticator.h"

namespace lethe {

CallCredentials CredentialsOf(const grpc::ServerContextBase& context);

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_CALL_CREDENTIALS_H_
