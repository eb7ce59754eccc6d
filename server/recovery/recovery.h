// RecoverSessions, CheckStoredSessions: bring the stored sessions back at start, and find what is damaged.
//
// Equation:  a recovered session has the state digest of the one that was stored: its state is evaluated again from its
//            inputs, of which it is a function (contract C1), when it is first used.
// Shapes:    none.
// Units:     seconds.
// Requires:  SessionStore::Recover has run; the models are loaded; nobody uses the registry yet.
// Rejects:   UNAVAILABLE: the store as a whole cannot be read.
// Effects:   RecoverSessions reads and authenticates everything but inputs; those are when a session is first used, or by
//            CheckStoredSessions, whatever comes first. A session with a damaged row, a row in the wrong place, or a
//            record that the log does not hold is quarantined: it stays on disk as it is, says so to whoever asks for it,
//            is reported and never served, and can be deleted. One whose model is not loaded (by digest) waits likewise:
//            other weights would make another session of it. One that was stored under another numerics id or device
//            kind is evaluated here when it is first used, and a migrate record says so before it is served (migration.h). When the registry's own
//            rows are damaged it starts without them, and this is reported.
// Numerics:  none here.
// Threads:   RecoverSessions: one thread. CheckStoredSessions: safe; it holds one session's lock at a time.
#ifndef LETHE_SERVER_RECOVERY_RECOVERY_H_
#define LETHE_SERVER_RECOVERY_RECOVERY_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"

#include "audit/log/audit_log.h"
#include "server/certification/audit_trail.h"
#include "server/session_registry/model_set.h"
#include "server/session_registry/session_registry.h"
#include "server/store/session_store.h"

namespace lethe {

struct RecoverySources {
  SessionStore* store = nullptr;
  const audit::AuditLog* log = nullptr;
  const ModelSet* models = nullptr;
  size_t stored_input_bytes = kDefaultStoredInputBytes;
  const AuditTrail* trail = nullptr;  // outlives the sessions
};

struct RecoverySummary {
  int64_t num_sessions = 0;  // served
  int64_t num_inputs = 0;    // of these
  int64_t num_moved = 0;     // of these: stored under another numerics id or device kind
  int64_t num_quarantined = 0;
  int64_t num_unnamed = 0;     // of these: not even their names are known
  int64_t num_waiting = 0;     // their model is not loaded
  bool requests_lost = false;  // of CreateSession and DeleteSession
  double seconds = 0.0;
};

absl::StatusOr<RecoverySummary> RecoverSessions(const RecoverySources& sources,
                                                SessionRegistry* registry);

// Reads the inputs of every session that is not in memory; returns how many are quarantined by now. `go_on` is asked
// before each.
int64_t CheckStoredSessions(const SessionRegistry& registry, const std::function<bool()>& go_on);

}  // namespace lethe

#endif  // LETHE_SERVER_RECOVERY_RECOVERY_H_
