#include "server/bench/kernel_bench.h"

namespace lethe::bench {

void AddOvqCases(KernelCases* /*cases*/) {}

}  // namespace lethe::bench
