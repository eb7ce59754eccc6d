// KernelCase, RunKernelBench: the kernels of a session, timed one by one on a device; behind
// `lethe bench kernels`.
//
// Shapes:   as each case's shape() says: B sequences, T tokens each, H heads, K and V dimensions.
// Units:    tokens/s, bytes/s; seconds by the device's clock (kernels/base/queue.h).
// Requires: none.
// Rejects:  UNAVAILABLE without the device; RESOURCE_EXHAUSTED where a case does not fit it.
// Effects:  prints to standard output: machine, device, the measured copy bandwidth, then per case
//           the median, least and greatest of the runs, and under it the peers of that case, timed
//           just before by kernel_peers.py. Without peers it says why and goes on.
// Numerics: inputs are random numbers, never zeros. Between runs nothing is reset: states go on.
// Threads:  owner thread.
#ifndef LETHE_SERVER_BENCH_KERNEL_BENCH_H_
#define LETHE_SERVER_BENCH_KERNEL_BENCH_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "kernels/base/queue.h"

namespace lethe::bench {

class KernelCase {
 public:
  virtual ~KernelCase() = default;

  virtual std::string kernel() const = 0;  // "palimpsa prefill"
  virtual std::string shape() const = 0;   // "B8 T4096 D64"; kernel_peers.py names cases alike
  virtual double tokens() const = 0;       // of one run
  // Read and written in one run where the kernel is bound by its states' bytes; else 0.
  virtual double state_bytes() const = 0;

  // Allocates and fills what Run needs.
  virtual absl::Status Prepare(Queue* queue) = 0;
  // Enqueues one run.
  virtual absl::Status Run(Queue* queue) = 0;
  // After the runs, where results can be compared with others in a moment: an error ends the bench.
  virtual absl::Status Check() { return absl::OkStatus(); }
};

using KernelCases = std::vector<std::unique_ptr<KernelCase>>;

// One function an operation, kernel_cases_<op>.cc.
void AddPalimpsaCases(KernelCases* cases);
void AddVlaCases(KernelCases* cases);
void AddVlaChunkCases(KernelCases* cases);
void AddOvqCases(KernelCases* cases);
void AddSvReadCases(KernelCases* cases);
void AddLocalCases(KernelCases* cases);
void AddSvddCases(KernelCases* cases);

struct KernelBenchOptions {
  DeviceKind device = DeviceKind::kCuda;
  std::string filter;  // of kernel and shape: cases that hold this text; empty takes all
  int runs = 20;
  bool with_peers = true;    // on a CUDA device, where python3 has them
  std::string peers_script;  // as MeasurePeers
  bool json = false;
};

absl::Status RunKernelBench(const KernelBenchOptions& options);

}  // namespace lethe::bench

#endif  // LETHE_SERVER_BENCH_KERNEL_BENCH_H_
