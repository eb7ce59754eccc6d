// CheckMachine, CheckProcess: settings of a machine, and of a running server, that keep copies of its memory or stop it.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  `files` shows the machine that the server runs on.
// Rejects:   nothing: what cannot be read is a note.
// Effects:   none. CheckProcess reads /proc/PID, which wants the server's user or root.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_DOCTOR_MACHINE_CHECKS_H_
#define LETHE_CLIENT_DOCTOR_MACHINE_CHECKS_H_

#include <cstdint>

#include "client/doctor/finding.h"
#include "client/doctor/system_files.h"

namespace lethe::client {

// Processor, swap, hibernation, kernel crash dumps, core dumps of programs, GPU.
Findings CheckMachine(const SystemFiles& files);

// Whether the process is lethe-server, swapped pages, core dump limit, protection from other processes.
Findings CheckProcess(int64_t pid, const SystemFiles& files);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_DOCTOR_MACHINE_CHECKS_H_
