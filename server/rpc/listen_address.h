// ParseListenAddress: HOST:PORT of --listen.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT for a text that is not HOST:PORT with a port of 0 to 65535 in digits.
// Effects:   none; whether the host exists and is ours shows when it is listened on.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_LISTEN_ADDRESS_H_
#define LETHE_SERVER_RPC_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"

namespace lethe {

struct ListenAddress {
  std::string host;  // with the brackets of an IPv6 address
  int port = 0;
};

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text);

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_LISTEN_ADDRESS_H_
