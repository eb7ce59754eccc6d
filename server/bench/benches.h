// RunModelBench, RunForgetBench, RunServerBench, RunRecallBench, RunSvddBench: the benchmarks behind
// `lethe bench`.
//
// Shapes:   sizes are tokens of history; of RunSvddBench, keys.
// Units:    tokens/s, milliseconds.
// Requires: none.
// Rejects:  what Model::Load rejects; INVALID_ARGUMENT for a size out of 64 … max_tokens or runs out of 1 … 1,000;
//           what ReadRecallCases rejects; INTERNAL when a Forget left a trace.
// Effects:  prints to standard output: machine, model, shapes, then median, least and greatest of the runs.
// Numerics: one compute thread; RunServerBench's client and gRPC's own threads run beside it.
// Threads:  owner thread.
#ifndef LETHE_SERVER_BENCH_BENCHES_H_
#define LETHE_SERVER_BENCH_BENCHES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "server/session/session.h"

namespace lethe::bench {

struct BenchOptions {
  std::string model_directory;
  std::vector<int64_t> sizes;  // tokens of history, or keys
  int runs = 5;
  int64_t stored_input_mib = 256;  // forget
  std::string cases_path;          // recall: the file of cases
  bool json = false;
};

// Prefill at every size, and decode of 128 tokens after a history of that size.
absl::Status RunModelBench(const BenchOptions& options);

// A Forget of one token at several distances from the head of a history of every size, of tokens
// scattered over it and of a run of them: on the way that the session takes, with its parts, and by
// re-evaluation. Then what a token costs in bytes.
absl::Status RunForgetBench(const BenchOptions& options);

// Decode of kServedTokens through gRPC over loopback against the bare loop, and of sessions that are stored (in a temporary
// directory) against the same in memory alone; runs side by side.
constexpr int64_t kServedTokens = 512;
absl::Status RunServerBench(const BenchOptions& options);

// Streams at once on a device (lethe-server's --device), greedy decoding through gRPC from as many clients on this machine, against a
// loop that evaluates as many sessions together without a server: tokens a second, time to the first token, time between tokens.
struct StreamBenchOptions {
  std::string device = "cpu-batched";  // or "cuda"
  std::string model_directory;         // empty: the built-in shapes with random weights
  std::string shape = "hybrid";        // whose name holds this text
  std::vector<int32_t> streams = {1, 16, 64, 256};
  int64_t num_tokens = 128;
  bool json = false;
};
absl::Status RunStreamBench(const StreamBenchOptions& options);

// The bare loop: greedy decoding without sampling rules, text handling or a server.
absl::Status DecodeGreedily(Session* session, int64_t num_tokens);

// Exact-match counts over the cases of a file: value recalled, then forgotten. Misses go to standard
// error.
absl::Status RunRecallBench(const BenchOptions& options);

// The incremental one-class solver on keys of its own, without a model: bulk load, Forget and Append,
// beside libsvm's training on the same keys and our own warm re-solve. INTERNAL when the maintained
// solution is not that of a solve from scratch.
absl::Status RunSvddBench(const BenchOptions& options);

}  // namespace lethe::bench

#endif  // LETHE_SERVER_BENCH_BENCHES_H_
