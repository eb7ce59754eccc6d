// ComputeScheduler: lets at most N evaluations run at once; tenants take turns, and within one it is first come, first served.
//
// The next turn is that of the waiting tenant whose last turn was longest ago. So a tenant with a hundred streams computes as often
// as one with a single stream, and whoever comes waits for one turn of each other tenant at most.
//
// A unit of work (one token of a stream, one piece of a prompt, one chunk of a Forget) holds a
// ComputeSlot while it computes. Lock order: the session's locks first, then the slot. So whoever
// holds a slot can always finish, and who waits for a session that a long Forget holds takes no
// slot from other sessions. Long work yields its slot between chunks.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  num_slots >= 1 (LETHE_CHECK); the scheduler outlives its slots. Tenants (Call::principal) are as many as there are
//            credentials for: each is kept.
// Rejects:   Acquire and Yield: what Call::Check says when the turn comes, so work of a client that
//            is gone never starts and stops at its next Yield.
// Effects:   Acquire blocks until it is this caller's turn. Yield lets those who wait compute first,
//            and holds the slot again when it returns, also with an error.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_SCHEDULER_COMPUTE_SCHEDULER_H_
#define LETHE_SERVER_SCHEDULER_COMPUTE_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
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

  int num_slots() const { return num_slots_; }
  // Callers that wait for a slot now.
  int num_waiting() const;

 private:
  friend class ComputeSlot;
  // Of a caller, on its stack; guarded by mutex_.
  struct Waiter {
    CondVar turn;
    bool admitted = false;
  };
  struct Tenant {
    std::deque<Waiter*> waiting;
    uint64_t last_turn = 0;  // 0: none yet
  };

  void Release();
  void Requeue(const Call& call);
  void WaitForTurn(const Call& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // As many as there are slots for.
  void Admit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int num_slots_;
  mutable Mutex mutex_;
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mutex_);
  // Tenants with waiters, by their last turn.
  std::set<std::pair<uint64_t, Tenant*>> ready_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_turns_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_running_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lethe

#endif  // LETHE_SERVER_SCHEDULER_COMPUTE_SCHEDULER_H_
