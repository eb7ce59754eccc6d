// FairMutex, FairMutexLock: a mutex that is granted in the order in which it was asked for.
//
// A generating stream takes its session's lock anew for every token. With std::mutex it could win
// every time against a Forget that waits; here the Forget gets in at the next token boundary.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  not recursive; the thread that locked unlocks.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_SCHEDULER_FAIR_MUTEX_H_
#define LETHE_SERVER_SCHEDULER_FAIR_MUTEX_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"

#include "kernels/base/mutex.h"

namespace lethe {

class ABSL_LOCKABLE FairMutex {
 public:
  FairMutex() = default;
  FairMutex(const FairMutex&) = delete;
  FairMutex& operator=(const FairMutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    MutexLock lock(&mutex_);
    const uint64_t ticket = next_ticket_++;
    while (ticket != now_serving_) changed_.Wait(&mutex_);
  }
  // False when somebody holds the mutex or waits for it.
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    MutexLock lock(&mutex_);
    if (next_ticket_ != now_serving_) return false;
    ++next_ticket_;
    return true;
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    MutexLock lock(&mutex_);
    ++now_serving_;
    changed_.SignalAll();
  }
  // Callers that wait in Lock now.
  int num_waiting() const {
    MutexLock lock(&mutex_);
    const uint64_t num_inside = next_ticket_ - now_serving_;
    return num_inside == 0 ? 0 : static_cast<int>(num_inside - 1);
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t now_serving_ ABSL_GUARDED_BY(mutex_) = 0;
};

class ABSL_SCOPED_LOCKABLE FairMutexLock {
 public:
  explicit FairMutexLock(FairMutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~FairMutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  FairMutexLock(const FairMutexLock&) = delete;
  FairMutexLock& operator=(const FairMutexLock&) = delete;

 private:
  FairMutex* mutex_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_SCHEDULER_FAIR_MUTEX_H_
