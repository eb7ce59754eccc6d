// AddConnectionOptions, ReadConnectOptions: the global options of `lethe` about the server, and the files that they name.
//
// Equation:  none.
// Shapes:    a token file holds the token on one line; the others are PEM.
// Units:     none.
// Requires:  none.
// Rejects:   ReadConnectOptions: INVALID_ARGUMENT naming the option whose file cannot be read or is empty, and an option
//            that wants another beside it.
// Effects:   none.
// Numerics:  none.
// Threads:   owner thread.
#ifndef LETHE_CLIENT_COMMANDS_CONNECTION_H_
#define LETHE_CLIENT_COMMANDS_CONNECTION_H_

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/commands/context.h"

namespace lethe::client {

void AddConnectionOptions(CLI::App& app, GlobalOptions& options);

absl::StatusOr<ConnectOptions> ReadConnectOptions(const GlobalOptions& options);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_CONNECTION_H_
