#include "server/bench/kernel_bench.h"

namespace lethe::bench {

void AddLocalCases(KernelCases* /*cases*/) {}

}  // namespace lethe::bench
