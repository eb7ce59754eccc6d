// CheckConfiguration: whether a server with these options could start here, as far as that shows without changing anything.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  the options were parsed; models and stored sessions are looked at elsewhere.
// Rejects:   INVALID_ARGUMENT or FAILED_PRECONDITION naming the first option that would not do: an address that cannot be
//            listened on, a data directory or ledger that cannot be written or made, memory that the machine has not.
// Effects:   opens and closes the addresses; makes nothing.
// Numerics:  none.
// Threads:   one thread.
#ifndef LETHE_SERVER_CONFIGURATION_CHECK_H_
#define LETHE_SERVER_CONFIGURATION_CHECK_H_

#include "absl/status/status.h"

#include "server/options.h"

namespace lethe {

absl::Status CheckConfiguration(const ServerOptions& options);

}  // namespace lethe

#endif  // LETHE_SERVER_CONFIGURATION_CHECK_H_
