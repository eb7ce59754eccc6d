// SetFault, ScopedFault: switch one mutant of kernels/base/fault.h on, in test programs only. CrashAtPoint: ends the
// process at a point of kernels/base/crash_point.h.
// Threads: safe; the setting is process-wide.
#ifndef LETHE_TESTS_TESTING_FAULT_SWITCH_H_
#define LETHE_TESTS_TESTING_FAULT_SWITCH_H_

#include <optional>

#include "kernels/base/fault.h"

namespace lethe::testing {

void SetFault(std::optional<Fault> fault);

class ScopedFault {
 public:
  explicit ScopedFault(Fault fault) { SetFault(fault); }
  ~ScopedFault() { SetFault(std::nullopt); }
  ScopedFault(const ScopedFault&) = delete;
  ScopedFault& operator=(const ScopedFault&) = delete;
};

// The process ends without any clean-up, as by kill -9, when it passes the n-th CrashPoint from now (from 1); 0: never.
void CrashAtPoint(int n);
// The same at the first point of this name.
void CrashAtMoment(const char* moment);
// Points passed since the last CrashAtPoint.
int NumPointsPassed();
// The exit status of such an end.
inline constexpr int kCrashExit = 137;

}  // namespace lethe::testing

#endif  // LETHE_TESTS_TESTING_FAULT_SWITCH_H_
