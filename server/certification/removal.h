// DraftRemoval, PrepareRemoval, CommitRemoval: what the record, the store and the commit of a Forget and of a selection
// have in common; RecordFailed: what becomes of a prepared change whose record failed.
//
// Equation:  none.
// Shapes:    ids ascending.
// Units:     token_ids.
// Requires:  the session's lock is held, since before `staged`. DraftRemoval: `inputs` are those of
//            before the removal or of after it. CommitRemoval: `record` is that of the draft.
// Rejects:   PrepareRemoval: reason SESSION_STORE. Nothing in CommitRemoval can fail. RecordFailed: always, with the
//            cause, reason AUDIT_LOG where it has none.
// Effects:   PrepareRemoval makes the session as it will be durable beside the one as it is (server/journal),
//            and puts it into the erasure ledger. RecordFailed takes both back when the log does not hold the
//            record. CommitRemoval puts the staged state into force, counts the epoch, destroys what stored
//            answers tell of what went, and adds the record to the session's list.
// Numerics:  none.
// Threads:   under the session's lock.
#ifndef LETHE_SERVER_CERTIFICATION_REMOVAL_H_
#define LETHE_SERVER_CERTIFICATION_REMOVAL_H_

#include <memory>
#include <optional>
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

// `request` names what `answer` answers; both as they will be remembered.
absl::Status PrepareRemoval(const AuditTrail& trail, const audit::PreparedRecord& record,
                            const audit::RecordDraft& draft, const AnyStagedForget& staged,
                            std::optional<RequestTable::Saved> request, const SessionEntry& entry,
                            RecordedChange* change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex);

// The same of a certificate, which takes nothing out.
absl::Status PrepareCertificate(const audit::PreparedRecord& record, const RecordRef& ref,
                                std::optional<RequestTable::Saved> request,
                                const SessionEntry& entry, RecordedChange* change)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex);

// What the change destroys is gone when this returns. If it fails, the record stands, and the next start erases.
absl::Status FinishRemoval(const AuditTrail& trail, const Inputs& after, RecordedChange* change);
// Whether the log holds the leaf; unset: it does not say.
std::optional<bool> IsRecorded(const AuditTrail& trail, const audit::Sha256Digest& leaf_hash);

absl::Status RecordFailed(const absl::Status& cause, const AuditTrail& trail,
                          RecordedChange* change);

// The reference of a record that is not in the log yet: without its index there.
RecordRef RefOf(const audit::PreparedRecord& record, const audit::RecordDraft& draft,
                const SessionEntry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex);

RecordRef CommitRemoval(const audit::FinishedRecord& record, const audit::RecordDraft& draft,
                        std::unique_ptr<AnyStagedForget> staged, SessionEntry* entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex);

}  // namespace lethe

#endif  // LETHE_SERVER_CERTIFICATION_REMOVAL_H_
