// KernelPeer, MeasurePeers: other people's kernels, timed by kernel_peers.py on the same device.
//
// Shapes:   kernel and shape name the case of ours that a peer stands beside.
// Units:    seconds, tokens/s, bytes/s.
// Requires: none.
// Rejects:  NOT_FOUND without the script; UNAVAILABLE when it ends with an error (no python3, no
//           PyTorch, no device), with what it said.
// Effects:  runs python3; what one peer of several lacks goes to standard error.
// Numerics: as the peer; its number format is in `dtype`.
// Threads:  safe.
#ifndef LETHE_SERVER_BENCH_KERNEL_PEERS_H_
#define LETHE_SERVER_BENCH_KERNEL_PEERS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lethe::bench {

struct KernelPeer {
  std::string kernel;
  std::string shape;
  std::string peer;
  std::string dtype;
  double median_s = 0.0;
  double min_s = 0.0;
  double max_s = 0.0;
  double tokens_per_s = 0.0;
  double state_bytes_per_s = 0.0;  // 0 where bytes are not the measure
  std::string json;                // the line as the script printed it
};

// `script`: kernel_peers.py; empty: the one beside this program.
absl::StatusOr<std::vector<KernelPeer>> MeasurePeers(std::string script, const std::string& filter,
                                                     int runs);

}  // namespace lethe::bench

#endif  // LETHE_SERVER_BENCH_KERNEL_PEERS_H_
