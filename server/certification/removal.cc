#include "server/certification/removal.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/certification/session_methods.h"
#include "server/certification/sv_heads.h"
#include "server/error/error_info.h"
#include "server/session_registry/durable_entry.h"
#include "server/session_registry/saved_session.h"

namespace lethe {
namespace {

std::vector<uint64_t> Without(const std::vector<uint64_t>& ids,
                              const std::vector<uint64_t>& removed) {
  std::vector<uint64_t> rest;
  std::set_difference(ids.begin(), ids.end(), removed.begin(), removed.end(),
                      std::back_inserter(rest));
  return rest;
}

}  // namespace

audit::RecordDraft DraftRemoval(audit::RecordDraft start, const SessionEntry& entry,
                                const Inputs& inputs, std::vector<uint64_t> removed,
                                const AnyStagedForget& staged) {
  const ForgetResult& result = staged.result();
  audit::RecordDraft draft = std::move(start);
  draft.digest_before = result.digest_before;
  draft.digest_after = result.digest_after;
  draft.forgotten = std::move(removed);
  draft.retained = Without(RetainedIds(inputs), draft.forgotten);
  draft.inputs_evicted = draft.kind == audit::RecordKind::kSelect || HasSelected(entry);
  draft.layers = LayerReports(entry, result.way);
  for (const SvHead& head : staged.SvHeads()) {
    draft.memories.push_back(DraftHead(head, draft.retained));
  }
  draft.stores = {{"session-memory", "replaced"}};
  if (entry.model != nullptr) draft.stores.push_back({"session-snapshots", "destroyed"});
  // Before the record is answered, and by the next start if the process ends in between.
  if (entry.journal != nullptr) draft.stores.push_back({"session-store", "erased"});
  if (draft.memory_wiped) draft.stores.push_back({audit::kStoreProcessMemory, "wiped"});
  return draft;
}

RecordRef RefOf(const audit::PreparedRecord& record, const audit::RecordDraft& draft,
                const SessionEntry& entry) {
  RecordRef ref;
  ref.seq = record.seq;
  ref.kind = draft.kind;
  ref.leaf_hash = record.leaf_hash;
  ref.mark = entry.mark;
  ref.num_inputs = static_cast<int64_t>(draft.retained.size());
  if (audit::RemovesInputs(draft.kind)) ++ref.mark.epoch;
  if (draft.kind == audit::RecordKind::kForget) {
    ref.mark.num_forgotten += static_cast<int64_t>(draft.forgotten.size());
  }
  return ref;
}

absl::Status PrepareRemoval(const AuditTrail& trail, const audit::PreparedRecord& record,
                            const audit::RecordDraft& draft, const AnyStagedForget& staged,
                            std::optional<RequestTable::Saved> request, const SessionEntry& entry,
                            RecordedChange* change) {
  if (entry.journal == nullptr) return absl::OkStatus();
  const std::vector<TokenIdRange> forgotten = ToRanges(draft.forgotten);
  SavedSession saved = SaveEntry(entry);
  saved.record_refs.push_back(RefOf(record, draft, entry));
  saved.mark = saved.record_refs.back().mark;
  saved.openings = {record.opening};
  saved.requests = entry.requests.Save(&forgotten);
  if (request.has_value()) saved.requests.push_back(*std::move(request));
  if (entry.model == nullptr) ++saved.counters.vector_epoch;
  saved.selected = saved.selected || draft.kind == audit::RecordKind::kSelect;
  LETHE_RETURN_IF_ERROR(WithStoreReason(change->PrepareRemoval(
      {draft.forgotten, staged.inputs(), VectorRowsOf(entry), WriteSnapshot(saved)},
      record.leaf_hash)));
  if (trail.ledger == nullptr) return absl::OkStatus();
  Erasure erasure;
  erasure.id = record.leaf_hash;
  erasure.session_id = entry.session_id;
  for (const TokenIdRange& range : forgotten) erasure.token_ids.push_back({range.first, range.end});
  return WithStoreReason(trail.ledger->Begin(erasure));
}

absl::Status FinishRemoval(const AuditTrail& trail, const Inputs& after, RecordedChange* change) {
  if (trail.ledger != nullptr) trail.ledger->Settle(change->leaf_hash());
  return WithStoreReason(change->Finish(&after));
}

absl::Status PrepareCertificate(const audit::PreparedRecord& record, const RecordRef& ref,
                                std::optional<RequestTable::Saved> request,
                                const SessionEntry& entry, RecordedChange* change) {
  if (entry.journal == nullptr) return absl::OkStatus();
  SavedDelta delta;
  delta.counters = CountersOf(entry);
  delta.request = std::move(request);
  delta.record = ref;
  delta.opening = record.opening;
  return WithStoreReason(change->PrepareDelta(WriteDelta(delta), record.leaf_hash));
}

std::optional<bool> IsRecorded(const AuditTrail& trail, const audit::Sha256Digest& leaf_hash) {
  const absl::StatusOr<uint64_t> found = trail.log->FindLeaf(leaf_hash);
  if (found.ok()) return true;
  return absl::IsNotFound(found.status()) ? std::optional<bool>(false) : std::nullopt;
}

absl::Status RecordFailed(const absl::Status& cause, const AuditTrail& trail,
                          RecordedChange* change) {
  const absl::Status failed = WithDefaultReason(cause, "AUDIT_LOG");
  if (!change->prepared()) return failed;
  const std::optional<bool> recorded = IsRecorded(trail, change->leaf_hash());
  // If that fails too the process ends, and its next start does the same.
  if (recorded == false && trail.ledger != nullptr) {
    trail.ledger->Void(change->leaf_hash()).IgnoreError();
  }
  change->Undo(recorded).IgnoreError();  // what it says, the store says to everybody from now on
  return failed;
}

RecordRef CommitRemoval(const audit::FinishedRecord& record, const audit::RecordDraft& draft,
                        std::unique_ptr<AnyStagedForget> staged, SessionEntry* entry) {
  LETHE_CHECK(entry->session->CommitStaged(std::move(staged)).ok());
  entry->mark.epoch += 1;
  if (draft.kind == audit::RecordKind::kForget) {
    entry->mark.num_forgotten += static_cast<int64_t>(draft.forgotten.size());
  }
  entry->requests.AfterForget(ToRanges(draft.forgotten));
  entry->record_refs.push_back(
      MakeRecordRef(record, draft.kind, entry->mark, entry->session->num_tokens()));
  return entry->record_refs.back();
}

}  // namespace lethe
