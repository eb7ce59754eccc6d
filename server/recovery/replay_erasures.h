// ReplayErasures: erases in recovered sessions what the erasure ledger says was erased since the data directory was
// copied, before anybody is served.
//
// Equation:  a session of a restored data directory that is in no later entry of the ledger has the digest that it was
//            copied with; one that is has the digest of a fresh session that was given the copied inputs without
//            those that the entries name. A session that was deleted since is deleted.
// Shapes:    none.
// Units:     none.
// Requires:  RecoverSessions has run; nobody uses the registry yet.
// Rejects:   FAILED_PRECONDITION: a session with something to be erased waits for its model or is damaged, or may be
//            one that is too damaged to say its name; what ForgetInputs and SessionRegistry::Delete reject (the audit log is frozen, say). What was
//            replayed before stays so; the next start goes on.
// Effects:   each session that loses inputs gets one Forget record of its own, policy KEEP_AND_REPORT with every id
//            named, whose requestId is "erasure-ledger-" and the first 32 digits of the id of its last entry: the hash
//            of the leaf that the Forget had in the log that was lost, where it was one. Then the ledger is settled.
// Numerics:  none. Without entries to look at: nothing. Else the inputs of the sessions named are read.
// Threads:   one thread.
#ifndef LETHE_SERVER_RECOVERY_REPLAY_ERASURES_H_
#define LETHE_SERVER_RECOVERY_REPLAY_ERASURES_H_

#include <cstdint>

#include "absl/status/statusor.h"

#include "server/certification/audit_trail.h"
#include "server/recovery/recovery.h"
#include "server/scheduler/compute_scheduler.h"
#include "server/session_registry/session_registry.h"
#include "server/store/session_store.h"

namespace lethe {

struct ReplayTools {
  SessionStore* store = nullptr;
  SessionRegistry* registry = nullptr;
  ComputeScheduler* scheduler = nullptr;
  const AuditTrail* trail = nullptr;  // with the ledger
};

struct ReplaySummary {
  int64_t num_forgotten = 0;  // inputs
  int64_t num_sessions = 0;   // that lost some
  int64_t num_deleted = 0;    // sessions
};

absl::StatusOr<ReplaySummary> ReplayErasures(const ReplayTools& tools,
                                             const RecoverySummary& recovered);

}  // namespace lethe

#endif  // LETHE_SERVER_RECOVERY_REPLAY_ERASURES_H_
