// SvddBatch: thousands of independent support-vector problems, resident on the device of a queue, solved
// and edited by the launch; what comes back is each one's proposed partition.
//
// Equation:  problem.h, for every slot on its own; how, svdd_block_solve.h and svdd_block_edit.h say. Canonical
//            makes the one solution of a proposal: Canon of canon.h, step (1), else the solver of the CPU.
// Shapes:    a slot holds up to max_keys keys of key_dim. keys in device memory, f64, [count][key_dim], those
//            of the listed problems behind each other. A proposal is in rank order, one entry a key.
// Units:     a-units.
// Requires:  keys in memory of the queue's device until the queue's Finish; finite components of at most 2^400 in
//            magnitude (others make a problem kUnsettled). The queue outlives the batch.
// Rejects:   INVALID_ARGUMENT naming the field and its range: max_keys 1..4096, num_slots 1..2^20, key_dim
//            that is not the batch's, a slot out of range or listed twice, a count beyond max_keys, ranks out of
//            range or not ascending, Add and Remove on a free slot. RESOURCE_EXHAUSTED: the device's memory.
//            INTERNAL: its errors. FAILED_PRECONDITION, Canonical: as CanonicalSolver::Solve. Nothing changed then,
//            INTERNAL excepted.
// Effects:   Load replaces what is in a slot; Remove moves later ranks down and overwrites with zeros every number
//            that belongs to a removed key, Free all of a slot's. Workspaces are overwritten before an operation
//            ends. On CUDA the work is enqueued, Read waits for it.
// Numerics:  f64. The numbers depend on the device kind and on the way to a key list; the partition does not where
//            margins can be proved, and what depends on nothing is Canonical's result. kSettled: a partition
//            whose signs are right to 1e-11 of lambda. kUnsettled: the CPU solves it (Canonical does).
//            Memory of a slot: 8 max_keys (max_keys + key_dim + 1) bytes and little more, of a batch besides, for each
//            block that runs at a time, 4 max_keys^2. Cost of Load O(n^2 d), of Add O(n d + n |S|) and the steps of
//            svdd_block_solve.h.
// Threads:   as Queue.
#ifndef LETHE_MEMORY_SVDD_SVDD_BATCH_H_
#define LETHE_MEMORY_SVDD_SVDD_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/base/queue.h"
#include "memory/svdd/canonical.h"
#include "memory/svdd/problem.h"
#include "memory/svdd/svdd_batch_device.h"
#include "memory/svdd/svdd_block_state.h"

namespace lethe::svdd {

struct SvddProposal {
  SvddStatus status = SvddStatus::kFree;
  double mass = 0.0;    // m
  double lambda = 0.0;  // 0 for n <= M, where nobody asks for it
  std::vector<Partition> classes;
  std::vector<double> a;
  int64_t num_exchanges = 0;  // of the last operation
  int64_t num_steps = 0;

  double rho() const { return mass > 0.0 ? 1.0 - lambda / mass : 0.0; }
};

struct SvddLoad {
  int32_t slot = 0;
  Params params;  // of MakeParams
  int64_t num_keys = 0;
};

struct SvddRemoval {
  int32_t slot = 0;
  std::vector<int32_t> ranks;  // ascending
};

class SvddBatch {
 public:
  static constexpr int64_t kMaxKeys = 4096;

  static absl::StatusOr<std::unique_ptr<SvddBatch>> Create(Queue* queue, int64_t num_slots,
                                                           int64_t max_keys, int64_t key_dim,
                                                           const SvddTuning& tuning = {});

  absl::Status Load(absl::Span<const SvddLoad> loads, const double* keys);
  absl::Status Add(absl::Span<const int32_t> slots, const double* keys);  // one key each
  absl::Status Remove(absl::Span<const SvddRemoval> removals);
  absl::Status Free(absl::Span<const int32_t> slots);
  absl::StatusOr<std::vector<SvddProposal>> Read(absl::Span<const int32_t> slots);

  int64_t num_slots() const { return static_cast<int64_t>(num_keys_.size()); }
  int64_t max_keys() const { return max_keys_; }
  int64_t num_keys(int32_t slot) const { return num_keys_[static_cast<size_t>(slot)]; }
  // For tests: everything that a slot holds, as it is in the device's memory.
  absl::StatusOr<std::vector<double>> SlotNumbers(int32_t slot) const;

 private:
  SvddBatch(Queue* queue, int64_t num_slots, int64_t max_keys, int64_t key_dim)
      : queue_(queue),
        max_keys_(max_keys),
        key_dim_(key_dim),
        num_keys_(static_cast<size_t>(num_slots)) {}

  absl::Status Allocate();
  // Each in range and once; with `in_use`, not free.
  absl::Status CheckSlots(absl::Span<const int32_t> slots, bool in_use) const;
  absl::Status Launch(SvddOperation operation, const std::vector<SvddJob>& jobs,
                      const SvddArguments& arguments);

  Queue* queue_;
  int64_t max_keys_;
  int64_t key_dim_;
  std::vector<int64_t> num_keys_;  // per slot, kFreeSlot where nothing was loaded
  SvddPool pool_ = {};
  SvddWork work_;
  DeviceArray<SvddHead> heads_;
  DeviceArray<double> keys_;
  DeviceArray<double> gram_;
  DeviceArray<double> a_;
  DeviceArray<uint8_t> classes_;
  DeviceArray<int32_t> row_of_rank_;
  DeviceArray<double> work_doubles_;
  DeviceArray<std::byte> work_vectors_;
  DeviceArray<int32_t> next_job_;
  // Arguments of a call; they stay until the next one.
  DeviceArray<SvddJob> jobs_;
  DeviceArray<SvddHead> new_heads_;
  DeviceArray<int32_t> ranks_;
};

// The canonical solution of these keys, with a proposal for them (or of anything else: it only costs time).
absl::StatusOr<Solution> Canonical(const Params& params, absl::Span<const double> keys,
                                   const SvddProposal& proposal, Counters* counters);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_SVDD_BATCH_H_
