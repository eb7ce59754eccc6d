// RunDeviceBench: whole models on a device, without a server around them: the bare batched loop; behind
// tests/bench/device_bench.cc.
//
// Shapes:   B sessions; a step is one token of each, a prefill many tokens of each. The models are synthetic
//           ones of fixed shapes, with BF16 weights.
// Units:    tokens/s, bytes, milliseconds of a clock around whole calls.
// Requires: none.
// Rejects:  UNAVAILABLE without the device; RESOURCE_EXHAUSTED where a model does not fit it.
// Effects:  prints to standard output, per model: weights, a session's state, then per batch the median
//           step with and without logits on the host, tokens a second, and how much of a step its bytes
//           would take at bound_bytes_per_s: weights once, states read and written.
// Numerics: random weights and tokens.
// Threads:  owner thread.
#ifndef LETHE_SERVER_BENCH_DEVICE_BENCH_H_
#define LETHE_SERVER_BENCH_DEVICE_BENCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "kernels/base/queue.h"

namespace lethe::bench {

struct DeviceBenchOptions {
  DeviceKind device = DeviceKind::kCuda;
  std::string filter;  // models whose name holds this text; empty takes all
  std::vector<int32_t> batches = {1, 16, 64, 256};
  int64_t prefix_tokens = 256;                    // a session has taken before its first step
  double seconds = 0.2;                           // of steps per measurement
  double bound_bytes_per_s = 4.25e12;             // what a copy reaches on one H200
  std::vector<bool> uses_graphs = {true, false};  // of decode steps, one table each
};

absl::Status RunDeviceBench(const DeviceBenchOptions& options);

}  // namespace lethe::bench

#endif  // LETHE_SERVER_BENCH_DEVICE_BENCH_H_
