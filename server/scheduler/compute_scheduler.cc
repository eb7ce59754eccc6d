#include "server/scheduler/compute_scheduler.h"

#include "kernels/base/check.h"

namespace lethe {

ComputeSlot::~ComputeSlot() {
  if (scheduler_ != nullptr) scheduler_->Release();
}

absl::Status ComputeSlot::Yield(const Call& call) {
  scheduler_->Requeue(call);
  return call.Check();
}

ComputeScheduler::ComputeScheduler(int num_slots) : num_slots_(num_slots) {
  LETHE_CHECK(num_slots >= 1);
}

absl::StatusOr<ComputeSlot> ComputeScheduler::Acquire(const Call& call) {
  {
    MutexLock lock(&mutex_);
    WaitForTurn(call);
  }
  ComputeSlot slot(this);
  if (absl::Status status = call.Check(); !status.ok()) return status;
  return slot;
}

int ComputeScheduler::num_waiting() const {
  MutexLock lock(&mutex_);
  return num_waiting_;
}

void ComputeScheduler::WaitForTurn(const Call& call) {
  Waiter waiter;
  Tenant& tenant = tenants_[call.principal().tenant];
  if (tenant.waiting.empty()) ready_.emplace(tenant.last_turn, &tenant);
  tenant.waiting.push_back(&waiter);
  ++num_waiting_;
  Admit();
  while (!waiter.admitted) waiter.turn.Wait(&mutex_);
}

void ComputeScheduler::Admit() {
  while (num_running_ < num_slots_ && !ready_.empty()) {
    Tenant& tenant = *ready_.begin()->second;
    ready_.erase(ready_.begin());
    Waiter& waiter = *tenant.waiting.front();
    tenant.waiting.pop_front();
    tenant.last_turn = ++num_turns_;
    if (!tenant.waiting.empty()) ready_.emplace(tenant.last_turn, &tenant);
    ++num_running_;
    --num_waiting_;
    waiter.admitted = true;
    waiter.turn.SignalAll();
  }
}

void ComputeScheduler::Requeue(const Call& call) {
  MutexLock lock(&mutex_);
  if (ready_.empty()) return;  // nobody waits
  --num_running_;
  WaitForTurn(call);
}

void ComputeScheduler::Release() {
  MutexLock lock(&mutex_);
  --num_running_;
  Admit();
}

}  // namespace lethe
