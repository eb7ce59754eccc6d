// DraftRemoval, CommitRemoval: what the record and the commit of a Forget and of a selection have in common.
//
// Equation:  none.
// Shapes:    ids ascending.
// Units:     token_ids.
// Requires:  the session's lock is held, since before `staged`. DraftRemoval: `inputs` are those of
//            before the removal or of after it. CommitRemoval: `record` is that of the draft.
// Rejects:   none: nothing in CommitRemoval can fail.
// Effects:   CommitRemoval puts the staged state into force, counts the epoch, destroys what stored
//            answers tell of what went, and adds the record to the session's list.
// Numerics:  none.
// Threads:   under the session's lock.
#ifndef LETHE_SERVER_CERTIFICATION_REMOVAL_H_
#define LETHE_SERVER_CERTIFICATION_REMOVAL_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"

#include "server/certification/audit_trail.h"
#include "server/session/any_session.h"
#include "server/session_registry/session_entry.h"

namespace lethe {

// Everything but what only a Forget has (derived tokens). `start`: StartDraft's.
audit::RecordDraft DraftRemoval(audit::RecordDraft start, const SessionEntry& entry,
                                const Inputs& inputs, std::vector<uint64_t> removed,
                                const AnyStagedForget& staged)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex);

RecordRef CommitRemoval(const audit::FinishedRecord& record, const audit::RecordDraft& draft,
                        std::unique_ptr<AnyStagedForget> staged, SessionEntry* entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex);

}  // namespace lethe

#endif  // LETHE_SERVER_CERTIFICATION_REMOVAL_H_
