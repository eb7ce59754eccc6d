// CallAdmission, AdmittedCall: which calls may begin, of all and of each tenant.
//
// A stream that cannot run yet waits, in the order of arrival among those whose tenant has room; other calls run at once or are
// refused: they wait for a compute slot (server/scheduler) anyway. Erasures have calls and a bucket of their own, so that
// a tenant whose other calls use up its share can still forget.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  the admission outlives its AdmittedCalls and its waiters.
// Rejects:   Admit: RESOURCE_EXHAUSTED, reasons TOO_MANY_REQUESTS (request_rate.h), TOO_MANY_CALLS, QUEUE_FULL, and
//            QUEUE_WAIT after queue_seconds; what Call::Check says while it waits, at least every kLookInterval; UNAVAILABLE,
//            reason SHUTTING_DOWN, after Stop.
// Effects:   an AdmittedCall counts until it is destroyed.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_LIMITS_CALL_ADMISSION_H_
#define LETHE_SERVER_LIMITS_CALL_ADMISSION_H_

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"

#include "kernels/base/mutex.h"
#include "server/limits/limits.h"
#include "server/limits/request_rate.h"
#include "server/scheduler/call.h"

namespace lethe {

enum class CallKind { kUnary, kErasure, kStream };

class CallAdmission;

class AdmittedCall {
 public:
  ~AdmittedCall();
  AdmittedCall(AdmittedCall&& other) noexcept
      : admission_(std::exchange(other.admission_, nullptr)),
        kind_(other.kind_),
        tenant_(std::move(other.tenant_)) {}
  AdmittedCall& operator=(AdmittedCall&&) = delete;

 private:
  friend class CallAdmission;
  AdmittedCall(CallAdmission* admission, CallKind kind, std::string tenant)
      : admission_(admission), kind_(kind), tenant_(std::move(tenant)) {}
  CallAdmission* admission_;
  CallKind kind_;
  std::string tenant_;
};

class CallAdmission {
 public:
  // Erasures of one tenant that run at once, whatever else it does.
  static constexpr int64_t kErasures = 16;
  static constexpr std::chrono::milliseconds kLookInterval{50};

  explicit CallAdmission(const Limits& limits);

  absl::StatusOr<AdmittedCall> Admit(CallKind kind, const Call& call);
  // From now on nothing is admitted, and nothing waits.
  void Stop();

  struct Counts {
    int64_t calls = 0;    // admitted, streams included
    int64_t streams = 0;  // that run
    int64_t waiting = 0;  // streams that wait
  };
  Counts counts() const;

 private:
  friend class AdmittedCall;
  struct Tenant {
    int64_t calls = 0;  // streams that wait included
    int64_t erasures = 0;
    int64_t streams = 0;
  };
  struct Waiter {
    Tenant* tenant = nullptr;
    bool runs = false;
  };

  absl::Status Enter(CallKind kind, Tenant* tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AwaitTurn(const Call& call, Tenant* tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets run whoever may.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave(CallKind kind, const std::string& tenant);

  const Limits limits_;
  RequestRate requests_;
  RequestRate erasures_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mutex_);
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);  // in the order of arrival
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lethe

#endif  // LETHE_SERVER_LIMITS_CALL_ADMISSION_H_
