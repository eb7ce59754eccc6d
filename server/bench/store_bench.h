// RunStoreBench: what keeping sessions on disk costs: appends, Forgets, bytes, and a start after kill -9.
//
// Equation:  none.
// Shapes:    `sessions` sessions of `inputs` inputs in one data directory.
// Units:     milliseconds, bytes, Forgets per minute.
// Requires:  called before the process has threads: the work runs in children that end without closing anything, as after
//            kill -9.
// Rejects:   what Model::Load rejects; INTERNAL when a child fails, or a session has another digest after a start.
// Effects:   writes to `directory` (emptied afterwards when it was made here); prints to standard output.
// Numerics:  none.
// Threads:   owner thread.
#ifndef LETHE_SERVER_BENCH_STORE_BENCH_H_
#define LETHE_SERVER_BENCH_STORE_BENCH_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace lethe::bench {

struct StoreBenchOptions {
  std::string model_directory;  // empty: vector sessions
  std::string directory;        // empty: a new one where temporary files go
  int64_t sessions = 10'000;
  int64_t inputs = 64;
  int64_t forgets = 1'000;  // of each count of threads
  int threads = 2;
  int runs = 3;  // starts
  bool json = false;
};

absl::Status RunStoreBench(const StoreBenchOptions& options);

}  // namespace lethe::bench

#endif  // LETHE_SERVER_BENCH_STORE_BENCH_H_
