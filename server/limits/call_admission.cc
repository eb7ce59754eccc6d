#include "server/limits/call_admission.h"

#include <algorithm>

#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"

namespace lethe {
namespace {

using Clock = std::chrono::steady_clock;

int64_t SteadyMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch())
      .count();
}

absl::Status ShuttingDown() {
  return WithErrorInfo(absl::UnavailableError("the server is shutting down"),
                       {"SHUTTING_DOWN", {}});
}

}  // namespace

AdmittedCall::~AdmittedCall() {
  if (admission_ != nullptr) admission_->Leave(kind_, tenant_);
}

CallAdmission::CallAdmission(const Limits& limits)
    : limits_(limits),
      requests_(limits.tenant_requests_per_second),
      erasures_(limits.tenant_requests_per_second) {}

absl::StatusOr<AdmittedCall> CallAdmission::Admit(CallKind kind, const Call& call) {
  const std::string& tenant = call.principal().tenant;
  RequestRate& rate = kind == CallKind::kErasure ? erasures_ : requests_;
  LETHE_RETURN_IF_ERROR(rate.Take(tenant, SteadyMicros()));
  MutexLock lock(&mutex_);
  if (stopped_) return ShuttingDown();
  Tenant* const counted = &tenants_[tenant];
  LETHE_RETURN_IF_ERROR(Enter(kind, counted));
  if (kind == CallKind::kStream) {
    if (absl::Status waited = AwaitTurn(call, counted); !waited.ok()) {
      --counted->calls;
      return waited;
    }
  }
  ++counts_.calls;
  return AdmittedCall(this, kind, tenant);
}

absl::Status CallAdmission::Enter(CallKind kind, Tenant* tenant) {
  if (kind == CallKind::kErasure) {
    if (tenant->erasures >= kErasures) {
      return LimitError({"TOO_MANY_CALLS", "erasures", kErasures, tenant->erasures + 1},
                        "this tenant has too many erasures running");
    }
    ++tenant->erasures;
    return absl::OkStatus();
  }
  if (tenant->calls >= limits_.tenant_calls) {
    return LimitError({"TOO_MANY_CALLS", "--tenant-calls", limits_.tenant_calls, tenant->calls + 1},
                      "this tenant has too many calls running or waiting");
  }
  ++tenant->calls;
  return absl::OkStatus();
}

absl::Status CallAdmission::AwaitTurn(const Call& call, Tenant* tenant) {
  const auto place = waiters_.insert(waiters_.end(), Waiter{tenant, false});
  Advance();
  if (place->runs) {
    waiters_.erase(place);
    return absl::OkStatus();
  }
  absl::Status status;
  if (counts_.waiting >= limits_.queue) {
    status = LimitError({"QUEUE_FULL", "--queue", limits_.queue, counts_.waiting + 1},
                        "too many streams wait already");
  } else {
    ++counts_.waiting;
    const auto end = Clock::now() + std::chrono::seconds(limits_.queue_seconds);
    while (!place->runs && status.ok()) {
      changed_.WaitUntil(&mutex_, std::min(end, Clock::now() + kLookInterval));
      if (place->runs) break;
      status = stopped_ ? ShuttingDown() : call.Check();
      if (status.ok() && Clock::now() >= end) {
        status = LimitError(
            {"QUEUE_WAIT", "--queue-seconds", limits_.queue_seconds, limits_.queue_seconds},
            "no stream ended in time for this one to run");
      }
    }
    --counts_.waiting;
  }
  waiters_.erase(place);
  return status;
}

void CallAdmission::Advance() {
  bool any = false;
  for (Waiter& waiter : waiters_) {
    if (counts_.streams >= limits_.streams) break;
    if (waiter.runs || waiter.tenant->streams >= limits_.tenant_streams) continue;
    waiter.runs = true;
    ++waiter.tenant->streams;
    ++counts_.streams;
    any = true;
  }
  if (any) changed_.SignalAll();
}

void CallAdmission::Leave(CallKind kind, const std::string& tenant) {
  MutexLock lock(&mutex_);
  Tenant& counted = tenants_[tenant];
  --counts_.calls;
  if (kind == CallKind::kErasure) {
    --counted.erasures;
    return;
  }
  --counted.calls;
  if (kind != CallKind::kStream) return;
  --counted.streams;
  --counts_.streams;
  Advance();
}

void CallAdmission::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  changed_.SignalAll();
}

CallAdmission::Counts CallAdmission::counts() const {
  MutexLock lock(&mutex_);
  return counts_;
}

}  // namespace lethe
