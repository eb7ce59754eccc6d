// CheckPort: whether a server could listen on an address of this machine.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  `address` is HOST:PORT (CheckAddress, client/commands/option_checks.h).
// Rejects:   nothing.
// Effects:   binds the address for a moment; never listens.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_DOCTOR_PORT_CHECKS_H_
#define LETHE_CLIENT_DOCTOR_PORT_CHECKS_H_

#include <string>

#include "client/doctor/finding.h"

namespace lethe::client {

Finding CheckPort(const std::string& address);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_DOCTOR_PORT_CHECKS_H_
