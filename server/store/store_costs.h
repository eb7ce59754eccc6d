// StoreCosts, CostTimer: where the time of a session store went, step by step.
//
// Equation:  none.
// Shapes:    none.
// Units:     seconds of a steady clock, summed since the store was opened.
// Requires:  none.
// Rejects:   none.
// Effects:   a CostTimer adds its own life to its part.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_SERVER_STORE_STORE_COSTS_H_
#define LETHE_SERVER_STORE_STORE_COSTS_H_

#include <chrono>
#include <cstdint>

namespace lethe {

struct StoreCosts {
  struct Part {
    int64_t count = 0;
    double seconds = 0.0;
  };
  Part key_sync;        // new data keys made durable before what they seal
  Part seal;            // rows encrypted
  Part transaction;     // of SQLite, sealing and the sync of a kSynced commit included
  Part key_erasure;     // old keys overwritten and synced
  Part wal_truncation;  // write-ahead log copied into the database and truncated
};

class CostTimer {
 public:
  explicit CostTimer(StoreCosts::Part* part) : part_(part) {}
  ~CostTimer() {
    ++part_->count;
    part_->seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  CostTimer(const CostTimer&) = delete;
  CostTimer& operator=(const CostTimer&) = delete;

 private:
  StoreCosts::Part* const part_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace lethe

#endif  // LETHE_SERVER_STORE_STORE_COSTS_H_
