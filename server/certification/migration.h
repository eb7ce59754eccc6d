// RecordMigration: the signed word that a session which was stored under other arithmetic is evaluated here from now on.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  the session's lock is held and the session is in memory, evaluated here; nobody was shown it yet.
// Rejects:   DATA_LOSS or UNAVAILABLE, reason AUDIT_LOG, when the log takes no record; reason SESSION_STORE. On every error
//            nothing changed, and the session must not be shown.
// Effects:   appends a migrate record to the log and to the session's sequence; the session is stored as one of here.
//            Earlier certificates stand: they are about the arithmetic that they name.
// Numerics:  none.
// Threads:   under the session's lock.
#ifndef LETHE_SERVER_CERTIFICATION_MIGRATION_H_
#define LETHE_SERVER_CERTIFICATION_MIGRATION_H_

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"

#include "audit/certificate/statement.h"
#include "server/certification/audit_trail.h"
#include "server/session_registry/session_entry.h"

namespace lethe {

// `from`: where it was evaluated before.
absl::Status RecordMigration(const audit::Arithmetic& from, const AuditTrail& trail,
                             SessionEntry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex);

}  // namespace lethe

#endif  // LETHE_SERVER_CERTIFICATION_MIGRATION_H_
