// RandomValues, RandomArray, AddMatmulCases, AddSamplingCases: the parts of AddLocalCases.
//
// Shapes:   [count].
// Units:    none.
// Requires: none.
// Rejects:  as DeviceArray::From.
// Effects:  none but what they return or append.
// Numerics: values uniform in [-1, 1), a function of the seed.
// Threads:  owner thread.
#ifndef LETHE_SERVER_BENCH_KERNEL_CASES_LOCAL_H_
#define LETHE_SERVER_BENCH_KERNEL_CASES_LOCAL_H_

#include <cstdint>
#include <vector>

#include "server/bench/kernel_bench.h"

namespace lethe::bench {

std::vector<float> RandomValues(int64_t count, uint32_t seed);
absl::StatusOr<DeviceArray<float>> RandomArray(Queue* queue, int64_t count, uint32_t seed);

void AddMatmulCases(KernelCases* cases);
void AddSamplingCases(KernelCases* cases);

}  // namespace lethe::bench

#endif  // LETHE_SERVER_BENCH_KERNEL_CASES_LOCAL_H_
