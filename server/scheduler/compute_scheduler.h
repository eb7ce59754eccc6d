// ComputeScheduler: lets at most N evaluations run at once, first come, first served.
//
// A unit of work (one token of a stream, one piece of a prompt, one chunk of a Forget) holds a
// ComputeSlot while it computes. Lock order: the session's locks first, then the slot. So whoever
// holds a slot can always finish, and who waits for a session that a long Forget holds takes no
// slot from other sessions. Long work yields its slot between chunks.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  num_slots >= 1 (LETHE_CHECK); the scheduler outlives its slots.
// Rejects:   Acquire and Yield: what Call::Check says when the turn comes, so work of a client that
//            is gone never starts and stops at its next Yield.
// Effects:   Acquire blocks until it is this caller's turn. Yield lets those who wait compute first,
//            and holds the slot again when it returns, also with an error.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_SCHEDULER_COMPUTE_SCHEDULER_H_
#define LETHE_SERVER_SCHEDULER_COMPUTE_SCHEDULER_H_

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/mutex.h"
#include "server/scheduler/call.h"

namespace lethe {

class ComputeScheduler;

// The right to compute, given back when destroyed.
class ComputeSlot {
 public:
  ~ComputeSlot();
  ComputeSlot(ComputeSlot&& other) noexcept
      : scheduler_(std::exchange(other.scheduler_, nullptr)) {}
  ComputeSlot& operator=(ComputeSlot&&) = delete;

  absl::Status Yield(const Call& call);

 private:
  friend class ComputeScheduler;
  explicit ComputeSlot(ComputeScheduler* scheduler) : scheduler_(scheduler) {}
  ComputeScheduler* scheduler_;
};

class ComputeScheduler {
 public:
  explicit ComputeScheduler(int num_slots);

  absl::StatusOr<ComputeSlot> Acquire(const Call& call);

  int num_slots() const { return static_cast<int>(num_slots_); }
  // Callers that wait for a slot now.
  int num_waiting() const;

 private:
  friend class ComputeSlot;
  void Release();
  void Requeue();
  void WaitForTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t num_slots_;
  mutable Mutex mutex_;
  CondVar released_;
  // Tickets are given out in order; ticket t may run once t < num_released_ + num_slots_, for then
  // at most num_slots_ - 1 of the tickets before it still run.
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_released_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lethe

#endif  // LETHE_SERVER_SCHEDULER_COMPUTE_SCHEDULER_H_
