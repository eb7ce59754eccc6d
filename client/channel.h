// MakeChannel: the connection of a Client, in plain text or TLS, whose calls carry a bearer token.
//
// Equation:  none.
// Shapes:    certificates and keys are PEM texts.
// Units:     none.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT: a certificate without its key or the other way round, either without tls_ca; a token that is no
//            line of visible ASCII; a token in plain text to an address beyond this machine.
// Effects:   opens no socket.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_CHANNEL_H_
#define LETHE_CLIENT_CHANNEL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/channel_arguments.h"

namespace lethe::client {

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const ConnectOptions& options,
                                                           const grpc::ChannelArguments& arguments);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_CHANNEL_H_
