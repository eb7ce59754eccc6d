// RestoreFrom, Spill, Evict: bring a session that is stored, and not in memory, back, and have one leave memory.
//
// Equation:  the restored session has the state digest of the one that was stored.
// Shapes:    none.
// Units:     as SessionEntry.
// Requires:  the entry outlives the function and has a journal; everything of the session is in it.
// Rejects:   the function: DATA_LOSS: rows are damaged, or are no history of the session's model; what the store rejects.
// Effects:   the function reads, and evaluates what is behind the last stored snapshot; one that is damaged is reported and
//            dropped, one of other arithmetic dropped, and then everything is evaluated. Spill stores snapshots of a model's
//            session whose evaluation would cost kSpillTokens or more. Evict: the next use restores the session. It refuses while a writer or a fork is at work,
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

// Evaluating so many tokens takes longer than reading a snapshot back: about 25 ms on lethe-tiny, against some
// milliseconds.
inline constexpr int64_t kSpillTokens = 256;

// True when Spill would store something.
bool IsWorthSpilling(const SessionEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex);
absl::Status Spill(SessionEntry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex);

// True: it left, or was not in memory.
bool Evict(SessionEntry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex);

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_RESTORE_H_
