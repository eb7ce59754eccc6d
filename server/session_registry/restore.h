// RestoreFrom, Evict: bring a session that is stored, and not in memory, back, and have one leave memory.
//
// Equation:  the restored session has the state digest of the one that was stored.
// Shapes:    none.
// Units:     as SessionEntry.
// Requires:  the entry outlives the function and has a journal; everything of the session is in it.
// Rejects:   the function: DATA_LOSS: rows are damaged, or are no history of the session's model; what the store rejects.
// Effects:   the function reads. Evict: the next use restores the session. It refuses while a writer or a fork is at work,
//            and where the session is not stored as it is.
// Numerics:  bit-exact.
// Threads:   the function: under the session's lock.
#ifndef LETHE_SERVER_SESSION_REGISTRY_RESTORE_H_
#define LETHE_SERVER_SESSION_REGISTRY_RESTORE_H_

#include "server/session_registry/saved_session.h"
#include "server/session_registry/session_entry.h"

namespace lethe {

// `selected`: of a vector session.
SessionEntry::RestoreFunction RestoreFrom(const SessionEntry& entry, const SavedCounters& counters,
                                          bool selected);

// True: it left, or was not in memory.
bool Evict(SessionEntry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex);

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_RESTORE_H_
