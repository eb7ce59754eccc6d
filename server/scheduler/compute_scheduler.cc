#include "server/scheduler/compute_scheduler.h"

#include "kernels/base/check.h"

namespace lethe {

ComputeSlot::~ComputeSlot() {
  if (scheduler_ != nullptr) scheduler_->Release();
}

absl::Status ComputeSlot::Yield(const Call& call) {
  scheduler_->Requeue();
  return call.Check();
}

ComputeScheduler::ComputeScheduler(int num_slots) : num_slots_(static_cast<uint64_t>(num_slots)) {
  LETHE_CHECK(num_slots >= 1);
}

absl::StatusOr<ComputeSlot> ComputeScheduler::Acquire(const Call& call) {
  {
    MutexLock lock(&mutex_);
    WaitForTurn();
  }
  ComputeSlot slot(this);
  if (absl::Status status = call.Check(); !status.ok()) return status;
  return slot;
}

int ComputeScheduler::num_waiting() const {
  MutexLock lock(&mutex_);
  const uint64_t num_admitted = num_released_ + num_slots_;
  return next_ticket_ > num_admitted ? static_cast<int>(next_ticket_ - num_admitted) : 0;
}

void ComputeScheduler::WaitForTurn() {
  const uint64_t ticket = next_ticket_++;
  while (ticket >= num_released_ + num_slots_) released_.Wait(&mutex_);
}

void ComputeScheduler::Requeue() {
  MutexLock lock(&mutex_);
  if (next_ticket_ <= num_released_ + num_slots_) return;  // nobody waits
  ++num_released_;
  released_.SignalAll();
  WaitForTurn();
}

void ComputeScheduler::Release() {
  MutexLock lock(&mutex_);
  ++num_released_;
  released_.SignalAll();
}

}  // namespace lethe
