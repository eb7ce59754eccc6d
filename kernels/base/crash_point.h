// CrashPoint: names a moment between two writes at which a process may be killed, for crash tests.
//
// Resolved at link time as FaultActive (fault.h) is: in programs it does nothing, and nothing can make it; tests
// link tests/testing/fault_switch.cc, which ends the process at the n-th point that is passed.
// Threads: safe.
#ifndef LETHE_KERNELS_BASE_CRASH_POINT_H_
#define LETHE_KERNELS_BASE_CRASH_POINT_H_

namespace lethe {

void CrashPoint(const char* moment);

}  // namespace lethe

#endif  // LETHE_KERNELS_BASE_CRASH_POINT_H_
