#include "server/bench/kernel_bench.h"

namespace lethe::bench {

void AddVlaCases(KernelCases* /*cases*/) {}

}  // namespace lethe::bench
