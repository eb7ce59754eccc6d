// RecordedChange: a change of a session's rows that goes with a record of the audit log.
#include <utility>

#include "kernels/base/crash_point.h"
#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "server/journal/session_journal.h"

namespace lethe {

RecordedChange::RecordedChange(SessionJournal* journal) ABSL_NO_THREAD_SAFETY_ANALYSIS
    : journal_(journal) {
  if (journal_ != nullptr) journal_->write_mutex_.Lock();
}

RecordedChange::~RecordedChange() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (journal_ != nullptr) journal_->write_mutex_.Unlock();
}

absl::Status RecordedChange::Prepare(JournalDraft draft, const audit::Sha256Digest& leaf_hash) {
  const absl::StatusOr<std::vector<StoredRow>> added =
      journal_->store_->Prepare(draft.change, leaf_hash);
  if (!added.ok()) {
    journal_->store_->Erase(draft.new_keys).IgnoreError();
    return added.status();
  }
  if (FaultActive(Fault::kKeysDestroyedEarly)) {
    LETHE_RETURN_IF_ERROR(journal_->store_->Erase(draft.dead_keys));
  }
  draft.FillIn(*added);
  draft_ = std::move(draft);
  leaf_hash_ = leaf_hash;
  return absl::OkStatus();
}

absl::Status RecordedChange::PrepareRemoval(const RemovalContent& content,
                                            const audit::Sha256Digest& leaf_hash)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (journal_ == nullptr) return absl::OkStatus();
  JournalDraft draft = journal_->StartDraft();
  LETHE_RETURN_IF_ERROR(journal_->DraftRemoval(content, &draft));
  return Prepare(std::move(draft), leaf_hash);
}

absl::Status RecordedChange::PrepareDelta(std::string delta, const audit::Sha256Digest& leaf_hash)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (journal_ == nullptr) return absl::OkStatus();
  journal_->delta_bytes_ += delta.size();
  JournalDraft draft = journal_->StartDraft();
  draft.AddMeta(std::move(delta));
  return Prepare(std::move(draft), leaf_hash);
}

absl::Status RecordedChange::Finish(const Inputs* after) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (!draft_.has_value()) return absl::OkStatus();
  CrashPoint("the record is in the log");
  LETHE_RETURN_IF_ERROR(journal_->store_->Finish(journal_->number_));
  journal_->state_ = std::move(draft_->next);
  if (after != nullptr) journal_->RefreshDrawn(*after);
  const std::vector<DataKeyRef> dead_keys = std::move(draft_->dead_keys);
  draft_.reset();
  return dead_keys.empty() ? absl::OkStatus() : journal_->store_->Erase(dead_keys);
}

absl::Status RecordedChange::Undo(std::optional<bool> recorded) {
  if (!draft_.has_value()) return absl::OkStatus();
  const JournalDraft draft = *std::exchange(draft_, std::nullopt);
  if (recorded != false) {
    return journal_->store_->GiveUp(absl::DataLossError(
        "the audit log failed to append a record and may hold it; a new start settles it"));
  }
  LETHE_RETURN_IF_ERROR(journal_->store_->Abandon(journal_->number_));
  return journal_->store_->Erase(draft.new_keys);
}

}  // namespace lethe
