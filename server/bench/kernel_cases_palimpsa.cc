#include "server/bench/kernel_bench.h"

namespace lethe::bench {

void AddPalimpsaCases(KernelCases* /*cases*/) {}

}  // namespace lethe::bench
