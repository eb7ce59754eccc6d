#include "kernels/base/crash_point.h"
#include "kernels/base/fault.h"

namespace lethe {

bool FaultActive(Fault /*fault*/) { return false; }

void CrashPoint(const char* /*moment*/) {}

}  // namespace lethe
