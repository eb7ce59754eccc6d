// StoreInputs, StoreRequest, ReserveIds, StoreCounters, StoreTakenBack: what a session that is stored writes to its journal.
//
// Equation:  none.
// Shapes:    none.
// Units:     token_ids.
// Requires:  the session's lock is held and the session is in memory.
// Rejects:   reason SESSION_STORE: the store took nothing, and the caller takes back what it did in memory.
// Effects:   without a journal all of these do nothing and return OK. StoreInputs: every input behind the last stored
//            one and the request, synced. StoreRequest: what the request table says of a request now, not synced; what is
//            stored later is not there without it. ReserveIds: ids below `end` are not given out again, whatever ends the
//            process. StoreCounters: the present counters, synced. StoreTakenBack: inputs go without a record, and are erased.
// Numerics:  none.
// Threads:   under the session's lock.
#ifndef LETHE_SERVER_SESSION_REGISTRY_DURABLE_ENTRY_H_
#define LETHE_SERVER_SESSION_REGISTRY_DURABLE_ENTRY_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

#include "server/session_registry/session_entry.h"

namespace lethe {

// Reason SESSION_STORE on an error that has none.
absl::Status WithStoreReason(const absl::Status& status);

// Keys and values of a vector session; none of a model's.
VectorRows VectorRowsOf(const SessionEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex);

absl::Status StoreInputs(const RequestKey& request, const StoredAnswer& answer, SessionEntry* entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex);
absl::Status StoreRequest(const RequestKey& request, const StoredAnswer& answer,
                          SessionEntry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex);
absl::Status ReserveIds(uint64_t end, SessionEntry* entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex);
absl::Status StoreCounters(SessionEntry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex);
// `staged`: the removal, not in force yet.
absl::Status StoreTakenBack(const AnyStagedForget& staged, SessionEntry* entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex);

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_DURABLE_ENTRY_H_
