// kernels_bench [cuda|cpu] [FILTER] [RUNS]: what `lethe bench kernels` prints, in a program without gRPC that a machine
// with a GPU and nothing else can run (tests/gpu_bundle).
#include <cstdio>
#include <cstdlib>
#include <string>

#include "server/bench/kernel_bench.h"

int main(int argc, char** argv) {
  lethe::bench::KernelBenchOptions options;
  if (argc > 1 && std::string(argv[1]) == "cpu") options.device = lethe::DeviceKind::kCpu;
  if (argc > 2) options.filter = argv[2];
  if (argc > 3) options.runs = std::atoi(argv[3]);
  const absl::Status status = lethe::bench::RunKernelBench(options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
