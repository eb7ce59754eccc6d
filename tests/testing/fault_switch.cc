#include "tests/testing/fault_switch.h"

#include <atomic>

namespace lethe {
namespace {

constexpr int kNoFault = -1;
std::atomic<int> active_fault{kNoFault};

}  // namespace

bool FaultActive(Fault fault) {
  return active_fault.load(std::memory_order_relaxed) == static_cast<int>(fault);
}

namespace testing {

void SetFault(std::optional<Fault> fault) {
  active_fault.store(fault.has_value() ? static_cast<int>(*fault) : kNoFault);
}

}  // namespace testing
}  // namespace lethe
