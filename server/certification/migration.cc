#include "server/certification/migration.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/certification/removal.h"
#include "server/certification/session_methods.h"
#include "server/certification/sv_heads.h"
#include "server/diagnostics/log.h"
#include "server/session_registry/durable_entry.h"
#include "server/session_registry/saved_session.h"

namespace lethe {
namespace {

audit::RecordDraft DraftMigration(const audit::Arithmetic& from, const AuditTrail& trail,
                                  const SessionEntry& entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex) {
  audit::RecordDraft draft = StartDraft(trail, audit::RecordKind::kMigrate, entry, "", "");
  draft.migrated_from = from;
  draft.digest_after = entry.session->Digest();
  draft.retained = RetainedIds(entry.session->inputs());
  draft.retains_derived = entry.session->inputs().any_derived_from_forgotten();
  draft.inputs_evicted = HasSelected(entry);
  draft.layers = LayerReports(entry, ForgetWay::kReevaluation);
  for (const SvHead& head : entry.session->SvHeads()) {
    draft.memories.push_back(DraftHead(head, draft.retained));
  }
  return draft;
}

// The whole session as it will be: under this numerics id, with the record.
absl::Status Prepare(const audit::PreparedRecord& record, const RecordRef& ref,
                     const SessionEntry& entry, RecordedChange* change)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex) {
  SavedSession saved = SaveEntry(entry);
  saved.record_refs.push_back(ref);
  saved.openings.push_back(record.opening);
  return WithStoreReason(change->PrepareRemoval(
      {{}, entry.session->inputs(), VectorRowsOf(entry), WriteSnapshot(saved)}, record.leaf_hash));
}

}  // namespace

absl::Status RecordMigration(const audit::Arithmetic& from, const AuditTrail& trail,
                             SessionEntry* entry) {
  const audit::RecordDraft draft = DraftMigration(from, trail, *entry);
  RecordRef ref;
  RecordedChange change(entry->journal.get());
  const auto prepare = [&](const audit::PreparedRecord& prepared) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    ref = RefOf(prepared, draft, *entry);
    return Prepare(prepared, ref, *entry, &change);
  };
  const absl::StatusOr<audit::FinishedRecord> record =
      trail.recorder->Record(draft, &entry->records, prepare);
  if (!record.ok()) return RecordFailed(record.status(), trail, &change);
  LETHE_RETURN_IF_ERROR(WithStoreReason(change.Finish(&entry->session->inputs())));
  ref.leaf_index = record->leaf_index;
  entry->record_refs.push_back(ref);
  LogInfo(absl::StrCat("stored session ", entry->journal->number(),
                       " was evaluated again under this numerics id; record ", ref.seq,
                       " of the session says so"));
  return absl::OkStatus();
}

}  // namespace lethe
