// ServerCore: what the services share: models, sessions, the scheduler and the audit trail.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  filled in before the services start; outlives them.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   safe after start.
#ifndef LETHE_SERVER_RPC_SERVER_CORE_H_
#define LETHE_SERVER_RPC_SERVER_CORE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"

#include "server/certification/audit_trail.h"
#include "server/device/device_model_state.h"
#include "server/forget_subject/subject_forgetter.h"
#include "server/identity/authenticator.h"
#include "server/limits/call_admission.h"
#include "server/metrics/server_metrics.h"
#include "server/scheduler/compute_scheduler.h"
#include "server/session_registry/model_set.h"
#include "server/session_registry/session_registry.h"

namespace lethe {

struct ServerCore {
  ServerCore(int compute_threads, int64_t max_sessions)
      : scheduler(compute_threads), sessions(max_sessions) {
    SetLimits({});
  }

  void SetLimits(const Limits& wanted) {
    limits = wanted;
    sessions.LimitTenants(wanted.tenant_sessions);
    admission = std::make_unique<CallAdmission>(wanted);
  }

  Limits limits;
  std::unique_ptr<CallAdmission> admission;  // never null
  const std::unique_ptr<ServerMetrics> metrics = std::make_unique<ServerMetrics>();
  ModelSet models;
  std::vector<std::shared_ptr<DeviceBackend>>
      devices;  // of the models, when not each stream computes on its own
  ComputeScheduler scheduler;
  SessionRegistry sessions;
  size_t stored_input_bytes = kDefaultStoredInputBytes;  // of each new session
  int64_t max_vectors = 65'536;                          // that a vector session holds
  AuditTrail trail;
  // Null: no credential is asked for, and every call is the local principal's.
  std::unique_ptr<const Authenticator> authenticator;
  // How often a call that runs on is authenticated again.
  std::chrono::milliseconds identity_interval{1'000};
  // Something that was to be erased may be there still: ends the process.
  std::function<void(const absl::Status&)> on_failure = [](const absl::Status&) {};
  SubjectForgetter subjects{{&sessions, &scheduler, &trail}};
  std::string record_spki;  // DER of the key that signs records
  // Whoever only watches ends; what computes goes on.
  std::atomic<bool> draining{false};
  // Running streams end at their next token boundary.
  std::atomic<bool> stopping{false};
};

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_SERVER_CORE_H_
