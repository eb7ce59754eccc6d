// SessionRegistry: imported sessions.
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/base/wall_clock.h"
#include "server/error/error_info.h"
#include "server/session_registry/create_answer.h"
#include "server/session_registry/durable_entry.h"
#include "server/session_registry/saved_session.h"
#include "server/session_registry/session_registry.h"
#include "server/session_registry/tenant_text.h"

namespace lethe {
namespace {

std::shared_ptr<SessionEntry> MakeImported(ImportedSession imported, const std::string& id,
                                           int64_t create_time_us) {
  std::string tenant = std::move(imported.tenant);
  if (imported.is_model) {
    return std::make_shared<SessionEntry>(
        id, imported.display_name,
        std::unique_ptr<Session>(static_cast<Session*>(imported.session.release())), create_time_us,
        std::move(tenant));
  }
  return std::make_shared<SessionEntry>(
      id, imported.display_name,
      std::unique_ptr<VectorSession>(static_cast<VectorSession*>(imported.session.release())),
      create_time_us, std::move(tenant));
}

absl::Status SessionChangedError() {
  return WithErrorInfo(
      absl::AbortedError("session_id: the session took inputs in meanwhile; import again"),
      {"SESSION_CHANGED", {{"field", "session_id"}}});
}

absl::Status CheckLabels(const std::string& tenant, const Inputs& inputs,
                         const SubjectFence& fence) {
  for (int64_t rank = 0; rank < inputs.size(); ++rank) {
    // Runs of one label are looked at once.
    if (rank > 0 && inputs.at(rank).subject_index == inputs.at(rank - 1).subject_index) continue;
    LETHE_RETURN_IF_ERROR(fence.Check(tenant, inputs.subject(rank)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SessionRegistry::StoreImported(const RequestKey& request, SessionEntry* entry,
                                            SessionEntry* old) {
  if (store_ == nullptr) return absl::OkStatus();
  LETHE_RETURN_IF_ERROR(WithStoreReason(CompactOwn()));
  SavedDelta delta;
  delta.request = SaveOwnRequest(entry->tenant, request, CreateAnswer(entry->session_id));
  FairMutexLock lock(&entry->mutex);
  entry->journal = std::make_unique<SessionJournal>(store_, store_->NewSession(), JournalState());
  return WithStoreReason(entry->journal->BeginImported(
      {entry->session->inputs(), VectorRowsOf(*entry), WriteSnapshot(SaveEntry(*entry)),
       WithTenant(entry->tenant, entry->session_id)},
      old == nullptr ? nullptr : old->journal.get(), journal_.get(),
      delta.request ? WriteDelta(delta) : ""));
}

absl::StatusOr<std::shared_ptr<SessionEntry>> SessionRegistry::Replace(
    ImportedSession imported, const std::shared_ptr<SessionEntry>& old, const RequestKey& request) {
  const uint64_t token_ids_from = imported.token_ids_from;
  const std::shared_ptr<SessionEntry> entry =
      MakeImported(std::move(imported), old->session_id, old->create_time_us);
  entry->fence = fence_;
  FairMutexLock old_lock(&old->mutex);
  LETHE_RETURN_IF_ERROR(old->LiveSession().status());
  if (CountersOf(*old).next_token_id > token_ids_from) return SessionChangedError();
  LETHE_RETURN_IF_ERROR(old->BeginWrite());
  {
    FairMutexLock lock(&entry->mutex);
    const audit::Sha256Digest newest =
        old->record_refs.empty() ? audit::Sha256Digest{} : old->record_refs.back().leaf_hash;
    entry->records = audit::SessionRecords::Restore(old->record_refs.size(), newest, {});
    entry->record_refs = old->record_refs;
    entry->mark = old->mark;
    ++entry->mark.epoch;
    entry->num_exports = old->num_exports;
    entry->Publish();
  }
  if (absl::Status stored = StoreImported(request, entry.get(), old.get()); !stored.ok()) {
    old->EndWrite();
    return stored;
  }
  // Nobody brings anything into the old one any more: it stays busy, and is empty.
  old->Clear();
  return entry;
}

absl::StatusOr<std::shared_ptr<SessionEntry>> SessionRegistry::Import(
    ImportedSession imported, const std::string& replaced_id, const RequestKey& request) {
  MutexLock change_lock(&change_mutex_);
  const std::string tenant = imported.tenant;
  RequestTable& requests = RequestsOf(tenant);
  LETHE_ASSIGN_OR_RETURN(const auto answer, requests.Find<CreateAnswer>(request));
  if (answer != nullptr) return Find(tenant, answer->session_id);
  LETHE_RETURN_IF_ERROR(CheckLabels(tenant, imported.session->inputs(), *fence_));
  std::shared_ptr<SessionEntry> entry;
  if (replaced_id.empty()) {
    LETHE_RETURN_IF_ERROR(CheckRoom(imported.tenant));
    entry = MakeImported(std::move(imported), RandomId(), NowMicros());
    entry->fence = fence_;
    LETHE_RETURN_IF_ERROR(StoreImported(request, entry.get(), nullptr));
  } else {
    LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<SessionEntry> old, Find(tenant, replaced_id));
    LETHE_ASSIGN_OR_RETURN(entry, Replace(std::move(imported), old, request));
  }
  requests.Remember(request, std::make_shared<CreateAnswer>(entry->session_id));
  MutexLock lock(&mutex_);
  Insert(entry);
  return entry;
}

}  // namespace lethe
