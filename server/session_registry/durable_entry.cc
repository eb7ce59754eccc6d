#include "server/session_registry/durable_entry.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/session_registry/saved_session.h"

namespace lethe {

absl::Status WithStoreReason(const absl::Status& status) {
  return status.ok() ? status : WithDefaultReason(status, "SESSION_STORE");
}

// As SaveRequest, and without what a Forget removed meanwhile.
std::optional<RequestTable::Saved> PresentRequest(const RequestKey& request,
                                                  const StoredAnswer& answer,
                                                  const SessionEntry& entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex) {
  std::optional<RequestTable::Saved> saved = SaveRequest(request, answer);
  if (saved.has_value() && entry.requests.IsForgotten(request.request_id)) saved->content.reset();
  return saved;
}

VectorRows VectorRowsOf(const SessionEntry& entry) {
  VectorRows rows;
  if (entry.model != nullptr) return rows;
  const auto& session = static_cast<const VectorSession&>(*entry.session);
  rows.keys = session.keys();
  rows.values = session.values();
  rows.key_dim = static_cast<size_t>(session.options().params.key_dim);
  rows.value_dim = static_cast<size_t>(session.options().value_dim);
  return rows;
}

absl::Status StoreInputs(const RequestKey& request, const StoredAnswer& answer,
                         SessionEntry* entry) {
  if (entry->journal == nullptr) return absl::OkStatus();
  if (entry->requests_unstored) {
    LETHE_RETURN_IF_ERROR(
        WithStoreReason(entry->journal->Compact(WriteSnapshot(SaveEntry(*entry)))));
    entry->requests_unstored = false;
  }
  SavedDelta delta;
  delta.counters = CountersOf(*entry);
  delta.request = PresentRequest(request, answer, *entry);
  LETHE_RETURN_IF_ERROR(WithStoreReason(entry->journal->AddInputs(
      entry->session->inputs(), VectorRowsOf(*entry), WriteDelta(delta))));
  if (!entry->journal->IsLong()) return absl::OkStatus();
  SavedSession saved = SaveEntry(*entry);
  // The caller remembers the request after this.
  if (delta.request.has_value()) saved.requests.push_back(*std::move(delta.request));
  return WithStoreReason(entry->journal->Compact(WriteSnapshot(saved)));
}

absl::Status StoreRequest(const RequestKey& request, const StoredAnswer& answer,
                          SessionEntry* entry) {
  if (entry->journal == nullptr) return absl::OkStatus();
  SavedDelta delta;
  delta.counters = CountersOf(*entry);
  delta.request = PresentRequest(request, answer, *entry);
  if (!delta.request.has_value()) return absl::OkStatus();
  return WithStoreReason(entry->journal->AddMeta(WriteDelta(delta), Durability::kHandedOver));
}

absl::Status ReserveIds(uint64_t end, SessionEntry* entry) {
  if (entry->journal == nullptr) return absl::OkStatus();
  SavedDelta delta;
  delta.counters = CountersOf(*entry);
  delta.counters.next_token_id = std::max(delta.counters.next_token_id, end);
  return WithStoreReason(entry->journal->AddMeta(WriteDelta(delta), Durability::kHandedOver));
}

absl::Status StoreCounters(SessionEntry* entry) {
  if (entry->journal == nullptr) return absl::OkStatus();
  SavedDelta delta;
  delta.counters = CountersOf(*entry);
  return WithStoreReason(entry->journal->AddMeta(WriteDelta(delta), Durability::kSynced));
}

absl::Status StoreTakenBack(const AnyStagedForget& staged, SessionEntry* entry) {
  if (entry->journal == nullptr) return absl::OkStatus();
  const ForgetResult& result = staged.result();
  std::vector<uint64_t> removed;
  std::merge(result.forgotten_ids.begin(), result.forgotten_ids.end(),
             result.derived_removed_ids.begin(), result.derived_removed_ids.end(),
             std::back_inserter(removed));
  SavedSession saved = SaveEntry(*entry);
  ++saved.mark.epoch;
  if (entry->model == nullptr) ++saved.counters.vector_epoch;
  return WithStoreReason(entry->journal->TakeBack(
      {removed, staged.inputs(), VectorRowsOf(*entry), WriteSnapshot(saved)}));
}

}  // namespace lethe
