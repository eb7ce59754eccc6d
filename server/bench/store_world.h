// StoreWorld: the layers of a server below gRPC on one data directory, for benchmarks of the store.
//
// Equation:  none.
// Shapes:    a session holds kBatches Appends of equal size, labelled "batch-0" ...
// Units:     seconds.
// Requires:  none.
// Rejects:   what the layers reject.
// Effects:   writes to the data directory.
// Numerics:  none.
// Threads:   Open: one thread; afterwards safe.
#ifndef LETHE_SERVER_BENCH_STORE_WORLD_H_
#define LETHE_SERVER_BENCH_STORE_WORLD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/certification/forgetter.h"
#include "server/recovery/recovery.h"
#include "server/store/data_directory.h"

namespace lethe::bench {

inline constexpr int64_t kBatches = 8;

struct StoreWorldOptions {
  std::string directory;
  std::shared_ptr<const Model> model;  // null: vector sessions of 16 dimensions
  int64_t max_sessions = 0;
  int threads = 1;
};

class StoreWorld {
 public:
  static absl::StatusOr<std::unique_ptr<StoreWorld>> Open(const StoreWorldOptions& options);

  // A session of num_inputs inputs.
  absl::Status AddSession(int64_t num_inputs, uint64_t seed);
  // Forgets one of the session's batches.
  absl::StatusOr<ForgetReceipt> Forget(const std::string& session_id, int64_t batch);
  absl::StatusOr<audit::Sha256Digest> Digest(const std::string& session_id);
  // Stores snapshots of the states of sessions in memory, as an orderly end does.
  void SpillAll() const;
  // By id.
  std::vector<std::string> SessionIds() const;

  SessionStore* store() const { return data_->store(); }
  const RecoverySummary& summary() const { return summary_; }
  double open_seconds() const { return open_seconds_; }

 private:
  explicit StoreWorld(const StoreWorldOptions& options);
  absl::Status Append(const std::shared_ptr<SessionEntry>& entry, int64_t num_inputs, int64_t batch,
                      uint64_t seed);

  const StoreWorldOptions options_;
  ModelSet models_;
  ComputeScheduler scheduler_;
  SessionRegistry registry_;
  std::unique_ptr<DataDirectory> data_;
  AuditTrail trail_;
  RecoverySummary summary_;
  double open_seconds_ = 0.0;
};

}  // namespace lethe::bench

#endif  // LETHE_SERVER_BENCH_STORE_WORLD_H_
