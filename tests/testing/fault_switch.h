// SetFault, ScopedFault: switch one mutant of kernels/base/fault.h on, in test programs only.
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

}  // namespace lethe::testing

#endif  // LETHE_TESTS_TESTING_FAULT_SWITCH_H_
