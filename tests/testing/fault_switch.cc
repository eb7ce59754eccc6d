#include "tests/testing/fault_switch.h"

#include <atomic>
#include <cstring>

#include <unistd.h>

#include "kernels/base/crash_point.h"

namespace lethe {
namespace {

constexpr int kNoFault = -1;
std::atomic<int> active_fault{kNoFault};
std::atomic<int> crash_at{0};
std::atomic<int> points_passed{0};
std::atomic<const char*> crash_moment{nullptr};

}  // namespace

bool FaultActive(Fault fault) {
  return active_fault.load(std::memory_order_relaxed) == static_cast<int>(fault);
}

void CrashPoint(const char* moment) {
  const char* const wanted = crash_moment.load();
  if (wanted != nullptr && std::strcmp(wanted, moment) == 0) _exit(testing::kCrashExit);
  if (points_passed.fetch_add(1) + 1 == crash_at.load()) _exit(testing::kCrashExit);
}

namespace testing {

void CrashAtPoint(int n) {
  points_passed.store(0);
  crash_at.store(n);
}

void CrashAtMoment(const char* moment) { crash_moment.store(moment); }

int NumPointsPassed() { return points_passed.load(); }

void SetFault(std::optional<Fault> fault) {
  active_fault.store(fault.has_value() ? static_cast<int>(*fault) : kNoFault);
}

}  // namespace testing
}  // namespace lethe
