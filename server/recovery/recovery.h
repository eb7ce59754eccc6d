// RecoverSessions: brings the stored sessions back at start.
//
// Equation:  a recovered session has the state digest of the one that was stored: its state is evaluated again from its
//            inputs, of which it is a function (contract C1), when it is first used.
// Shapes:    none.
// Units:     seconds.
// Requires:  SessionStore::Recover has run; the models are loaded; nobody uses the registry yet.
// Rejects:   DATA_LOSS, UNAVAILABLE: the store as a whole cannot be read, or the registry's own rows.
// Effects:   every row is read and authenticated. A session with a damaged row, or with a record that the log does not
//            hold, is quarantined: it stays on disk as it is, is reported and never served. One whose model is not
//            loaded (by digest) waits on disk and is reported: other weights would make another session of it. One that
//            was stored under another numerics id or device kind is served; its digest is that of a fresh
//            session here, and it is reported.
// Numerics:  none here.
// Threads:   one thread.
#ifndef LETHE_SERVER_RECOVERY_RECOVERY_H_
#define LETHE_SERVER_RECOVERY_RECOVERY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

#include "audit/log/audit_log.h"
#include "server/session_registry/model_set.h"
#include "server/session_registry/session_registry.h"
#include "server/store/session_store.h"

namespace lethe {

struct RecoverySources {
  SessionStore* store = nullptr;
  const audit::AuditLog* log = nullptr;
  const ModelSet* models = nullptr;
  size_t stored_input_bytes = kDefaultStoredInputBytes;
};

struct RecoverySummary {
  int64_t num_sessions = 0;  // served
  int64_t num_inputs = 0;    // of these
  int64_t num_moved = 0;     // of these: stored under another numerics id or device kind
  int64_t num_quarantined = 0;
  int64_t num_waiting = 0;  // their model is not loaded
  double seconds = 0.0;
};

absl::StatusOr<RecoverySummary> RecoverSessions(const RecoverySources& sources,
                                                SessionRegistry* registry);

}  // namespace lethe

#endif  // LETHE_SERVER_RECOVERY_RECOVERY_H_
