// device_bench [cuda|cpu] [MODEL] [both|graphs|plain] [B,B,…] [PREFIX]: whole models on a device without a server around them
// (server/bench/device_bench.h), in a program without gRPC that a machine with a GPU and nothing else can run (tests/gpu_bundle).
#include "server/bench/device_bench.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

int main(int argc, char** argv) {
  lethe::bench::DeviceBenchOptions options;
  if (argc > 1 && std::string(argv[1]) == "cpu") options.device = lethe::DeviceKind::kCpu;
  if (argc > 2) options.filter = argv[2];
  if (argc > 3 && std::string(argv[3]) != "both") {
    options.uses_graphs = {std::string(argv[3]) == "graphs"};
  }
  if (argc > 4) {
    options.batches.clear();
    std::istringstream list(argv[4]);
    for (std::string batch; std::getline(list, batch, ',');) {
      options.batches.push_back(std::atoi(batch.c_str()));
    }
  }
  if (argc > 5) options.prefix_tokens = std::atoi(argv[5]);
  const absl::Status status = lethe::bench::RunDeviceBench(options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
