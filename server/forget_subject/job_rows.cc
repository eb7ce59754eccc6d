#include "server/forget_subject/job_rows.h"

#include <utility>

#include "kernels/base/crash_point.h"
#include "kernels/base/status_macros.h"

namespace lethe {

JobRows::JobRows(SessionStore* store, int64_t number, std::vector<StoredRow> rows)
    : store_(store), number_(number), key_(rows.back().key), rows_(std::move(rows)) {}

absl::StatusOr<std::vector<std::string>> JobRows::ReadAll() {
  std::vector<std::string> bodies;
  for (const StoredRow& row : rows_) {
    LETHE_ASSIGN_OR_RETURN(bodies.emplace_back(), store_->Read(number_, row));
  }
  return bodies;
}

StoreChange JobRows::NewChange() const {
  StoreChange change;
  change.session = number_;
  return change;
}

absl::Status JobRows::Add(std::string body, Durability durability) {
  if (store_ == nullptr) return absl::OkStatus();
  const bool is_new = number_ == 0;
  if (is_new) {
    number_ = store_->NewSession();
    LETHE_ASSIGN_OR_RETURN(key_, store_->NewKey());
  }
  StoreChange change = NewChange();
  change.add.emplace_back(RowKind::kJob, key_, RowSpan{}, std::move(body));
  const absl::StatusOr<std::vector<StoredRow>> added =
      store_->Apply(absl::MakeConstSpan(&change, 1), durability);
  if (!added.ok()) {
    if (is_new) store_->Erase({key_}).IgnoreError();
    return added.status();
  }
  rows_.push_back(added->front());
  CrashPoint("a row of a job is stored");
  return absl::OkStatus();
}

absl::Status JobRows::Prepare(std::string body, const audit::Sha256Digest& leaf_hash) {
  if (store_ == nullptr) return absl::OkStatus();
  LETHE_ASSIGN_OR_RETURN(next_key_, store_->NewKey());
  StoreChange change = NewChange();
  change.add.emplace_back(RowKind::kJob, next_key_, RowSpan{}, std::move(body));
  for (const StoredRow& row : rows_) change.remove.push_back(row.row_id);
  absl::StatusOr<std::vector<StoredRow>> added = store_->Prepare(change, leaf_hash);
  if (!added.ok()) {
    store_->Erase({next_key_}).IgnoreError();
    return added.status();
  }
  next_rows_ = *std::move(added);
  prepared_ = true;
  return absl::OkStatus();
}

absl::Status JobRows::Finish() {
  if (!prepared_) return absl::OkStatus();
  prepared_ = false;
  CrashPoint("the summary is in the log");
  LETHE_RETURN_IF_ERROR(store_->Finish(number_));
  rows_ = std::move(next_rows_);
  const DataKeyRef old_key = std::exchange(key_, next_key_);
  return store_->Erase({old_key});
}

absl::Status JobRows::Undo(std::optional<bool> recorded) {
  if (!prepared_) return absl::OkStatus();
  prepared_ = false;
  if (recorded != false) {
    return store_->GiveUp(absl::DataLossError(
        "the audit log failed to append a summary and may hold it; a new start settles it"));
  }
  LETHE_RETURN_IF_ERROR(store_->Abandon(number_));
  return store_->Erase({next_key_});
}

absl::Status JobRows::GiveUp(const absl::Status& cause) {
  return store_ == nullptr ? cause : store_->GiveUp(cause);
}

absl::Status JobRows::Remove() {
  if (store_ == nullptr || rows_.empty()) return absl::OkStatus();
  StoreChange change = NewChange();
  for (const StoredRow& row : rows_) change.remove.push_back(row.row_id);
  change.is_all = true;
  LETHE_RETURN_IF_ERROR(
      store_->Apply(absl::MakeConstSpan(&change, 1), Durability::kSynced).status());
  rows_.clear();
  return store_->Erase({key_});
}

}  // namespace lethe
