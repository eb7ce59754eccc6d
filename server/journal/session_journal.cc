#include "server/journal/session_journal.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

constexpr size_t kLongDeltaBytes = size_t{64} << 10;

// Meta rows that are joined whatever their size.
constexpr size_t kLongDeltaRows = 256;

}  // namespace

JournalDraft SessionJournal::StartDraft() {
  JournalDraft draft;
  draft.change.session = number_;
  draft.next = state_;
  return draft;
}

absl::Status SessionJournal::Apply(JournalDraft draft, Durability durability) {
  absl::StatusOr<std::vector<StoredRow>> added =
      store_->Apply(absl::MakeConstSpan(&draft.change, 1), durability);
  if (!added.ok()) {
    store_->Erase(draft.new_keys).IgnoreError();  // they sealed nothing that is stored
    return added.status();
  }
  draft.FillIn(*added);
  state_ = std::move(draft.next);
  return draft.dead_keys.empty() ? absl::OkStatus() : store_->Erase(draft.dead_keys);
}

absl::Status SessionJournal::Begin(std::string snapshot, std::string name, SessionJournal* other,
                                   std::string other_delta) {
  const Inputs none;
  return BeginImported({none, VectorRows(), std::move(snapshot), std::move(name)}, nullptr, other,
                       std::move(other_delta));
}

absl::Status SessionJournal::Destroy(SessionJournal* other, std::string other_delta) {
  MutexLock lock(&write_mutex_);
  MutexLock other_lock(&other->write_mutex_);
  std::vector<StoreChange> changes;
  changes.push_back(Removal());
  JournalDraft other_draft = other->StartDraft();
  other->delta_bytes_ += other_delta.size();
  if (!other_delta.empty()) other_draft.AddMeta(std::move(other_delta));
  changes.push_back(std::move(other_draft.change));
  LETHE_ASSIGN_OR_RETURN(const std::vector<StoredRow> added,
                         store_->Apply(changes, Durability::kSynced));
  other_draft.change = std::move(changes[1]);
  other_draft.FillIn(added);
  other->state_ = std::move(other_draft.next);
  std::vector<DataKeyRef> keys = state_.keys();
  // A damaged row may say a key that is another session's.
  if (!state_.damaged_rows.empty()) {
    LETHE_ASSIGN_OR_RETURN(keys, store_->Unreferenced(keys));
  }
  Empty();
  return store_->Erase(keys);
}

StoreChange SessionJournal::Removal() const {
  StoreChange change;
  change.session = number_;
  change.remove = state_.row_ids();
  change.is_all = true;
  return change;
}

void SessionJournal::Empty() {
  state_ = JournalState();
  MutexLock drawn_lock(&drawn_mutex_);
  drawn_ = Inputs();
}

absl::Status SessionJournal::BeginImported(const ImportContent& content, SessionJournal* replaced,
                                           SessionJournal* other,
                                           std::string other_delta) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  MutexLock lock(&write_mutex_);
  MutexLock other_lock(&other->write_mutex_);
  std::optional<MutexLock> replaced_lock;
  if (replaced != nullptr) replaced_lock.emplace(&replaced->write_mutex_);
  snapshot_bytes_ = content.snapshot.size();
  other->delta_bytes_ += other_delta.size();
  JournalDraft draft = StartDraft();
  if (content.inputs.size() > 0) {
    LETHE_RETURN_IF_ERROR(
        draft.AddInputs({content.inputs, 0, content.inputs.size()}, content.vectors, store_));
  }
  LETHE_RETURN_IF_ERROR(draft.ReplaceMeta(content.snapshot, true, store_));
  draft.change.name = content.name;
  draft.change.name_key = other->state_.meta_key;
  JournalDraft other_draft = other->StartDraft();
  if (!other_delta.empty()) other_draft.AddMeta(std::move(other_delta));
  std::vector<StoreChange> changes;
  changes.push_back(std::move(draft.change));
  changes.push_back(std::move(other_draft.change));
  if (replaced != nullptr) changes.push_back(replaced->Removal());
  const absl::StatusOr<std::vector<StoredRow>> stored = store_->Apply(changes, Durability::kSynced);
  if (!stored.ok()) {
    store_->Erase(draft.new_keys).IgnoreError();
    return stored.status();
  }
  draft.change = std::move(changes[0]);
  other_draft.change = std::move(changes[1]);
  const size_t own = draft.change.add.size();
  draft.FillIn(absl::MakeConstSpan(*stored).first(own));
  other_draft.FillIn(absl::MakeConstSpan(*stored).subspan(own));
  state_ = std::move(draft.next);
  other->state_ = std::move(other_draft.next);
  if (replaced == nullptr) return absl::OkStatus();
  const std::vector<DataKeyRef> old_keys = replaced->state_.keys();
  replaced->Empty();
  return store_->Erase(old_keys);
}

absl::Status SessionJournal::StartOver(std::string snapshot) {
  MutexLock lock(&write_mutex_);
  snapshot_bytes_ = snapshot.size();
  JournalDraft draft = StartDraft();
  draft.change.remove = state_.row_ids();
  draft.change.is_all = true;
  draft.next = JournalState();
  LETHE_RETURN_IF_ERROR(draft.ReplaceMeta(std::move(snapshot), true, store_));
  return Apply(std::move(draft), Durability::kSynced);
}

absl::Status SessionJournal::AddMeta(std::string delta, Durability durability) {
  MutexLock lock(&write_mutex_);
  delta_bytes_ += delta.size();
  JournalDraft draft = StartDraft();
  draft.AddMeta(std::move(delta));
  return Apply(std::move(draft), durability);
}

absl::Status SessionJournal::AddInputs(const Inputs& inputs, const VectorRows& vectors,
                                       std::string delta) {
  MutexLock lock(&write_mutex_);
  delta_bytes_ += delta.size();
  JournalDraft draft = StartDraft();
  const int64_t first = inputs.RanksOf({state_.end_id(), kAllIds}).first;
  if (first < inputs.size()) {
    LETHE_RETURN_IF_ERROR(draft.AddInputs({inputs, first, inputs.size()}, vectors, store_));
  }
  draft.AddMeta(std::move(delta));
  LETHE_RETURN_IF_ERROR(Apply(std::move(draft), Durability::kSynced));
  MutexLock drawn_lock(&drawn_mutex_);
  drawn_ = Inputs();
  return absl::OkStatus();
}

void SessionJournal::NoteDrawn(const Inputs& inputs) {
  if (inputs.size() == 0) return;
  const int64_t last = inputs.size() - 1;
  MutexLock lock(&drawn_mutex_);
  drawn_.AppendStored(inputs.at(last), inputs.subject(last));
}

absl::Status SessionJournal::FlushDrawn() {
  MutexLock lock(&write_mutex_);
  Inputs drawn;
  {
    MutexLock drawn_lock(&drawn_mutex_);
    std::swap(drawn, drawn_);
  }
  if (drawn.size() == 0) return absl::OkStatus();
  JournalDraft draft = StartDraft();
  LETHE_RETURN_IF_ERROR(draft.AddInputs({drawn, 0, drawn.size()}, VectorRows(), store_));
  return Apply(std::move(draft), Durability::kHandedOver);
}

absl::Status SessionJournal::DraftRemoval(const RemovalContent& content, JournalDraft* draft) {
  snapshot_bytes_ = content.snapshot.size();
  delta_bytes_ = 0;
  LETHE_RETURN_IF_ERROR(
      draft->RemoveInputs(content.removed_ids, content.after, content.vectors, store_));
  return draft->ReplaceMeta(content.snapshot, true, store_);
}

void SessionJournal::RefreshDrawn(const Inputs& after) {
  MutexLock lock(&drawn_mutex_);
  Inputs refreshed;
  for (int64_t i = 0; i < drawn_.size(); ++i) {
    const int64_t rank = after.FindRank(drawn_.at(i).token_id);
    if (rank >= 0) refreshed.AppendStored(after.at(rank), after.subject(rank));
  }
  std::swap(drawn_, refreshed);
}

absl::Status SessionJournal::TakeBack(const RemovalContent& content) {
  MutexLock lock(&write_mutex_);
  if (!content.removed_ids.empty() && content.removed_ids.front() < state_.end_id()) {
    JournalDraft draft = StartDraft();
    LETHE_RETURN_IF_ERROR(DraftRemoval(content, &draft));
    LETHE_RETURN_IF_ERROR(Apply(std::move(draft), Durability::kSynced));
  }
  RefreshDrawn(content.after);
  return absl::OkStatus();
}

absl::Status SessionJournal::AddSnapshots(std::vector<Snapshot> snapshots, bool instead) {
  MutexLock lock(&write_mutex_);
  JournalDraft draft = StartDraft();
  if (instead) draft.DropSnapshots(0);
  for (Snapshot& snapshot : snapshots) {
    LETHE_RETURN_IF_ERROR(
        draft.AddSnapshot(std::move(snapshot.body), snapshot.end_id, snapshot.rank, store_));
  }
  return Apply(std::move(draft), Durability::kHandedOver);
}

absl::Status SessionJournal::DropSnapshots() { return AddSnapshots({}, true); }

absl::StatusOr<std::vector<std::string>> SessionJournal::ReadSnapshots() {
  MutexLock lock(&write_mutex_);
  std::vector<std::string> bodies;
  for (const StoredRow& row : state_.snapshot_rows) {
    LETHE_ASSIGN_OR_RETURN(std::string body, store_->Read(number_, row));
    bodies.push_back(std::move(body));
  }
  return bodies;
}

int64_t SessionJournal::snapshot_rank() const {
  MutexLock lock(&write_mutex_);
  return state_.snapshot_rows.empty() ? 0 : state_.snapshot_rows.back().span.num_inputs;
}

int64_t SessionJournal::num_snapshots() const {
  MutexLock lock(&write_mutex_);
  return static_cast<int64_t>(state_.snapshot_rows.size());
}

int64_t SessionJournal::snapshot_bytes() const {
  MutexLock lock(&write_mutex_);
  int64_t bytes = 0;
  for (const StoredRow& row : state_.snapshot_rows) bytes += row.num_bytes;
  return bytes;
}

bool SessionJournal::IsLong() const {
  MutexLock lock(&write_mutex_);
  return delta_bytes_ > std::max(kLongDeltaBytes, 2 * snapshot_bytes_) ||
         state_.meta_rows.size() > kLongDeltaRows;
}

absl::Status SessionJournal::ReplaceMeta(std::string snapshot, bool new_key) {
  snapshot_bytes_ = snapshot.size();
  delta_bytes_ = 0;
  JournalDraft draft = StartDraft();
  LETHE_RETURN_IF_ERROR(draft.ReplaceMeta(std::move(snapshot), new_key, store_));
  return Apply(std::move(draft), Durability::kSynced);
}

absl::Status SessionJournal::Compact(std::string snapshot) {
  MutexLock lock(&write_mutex_);
  return ReplaceMeta(std::move(snapshot), state_.meta_rows.empty());
}

absl::Status SessionJournal::Renew(std::string snapshot) {
  MutexLock lock(&write_mutex_);
  return ReplaceMeta(std::move(snapshot), true);
}

absl::StatusOr<std::vector<std::string>> SessionJournal::ReadMeta() {
  MutexLock lock(&write_mutex_);
  std::vector<std::string> bodies;
  MetaTrailer trailer;
  for (const StoredRow& row : state_.meta_rows) {
    LETHE_ASSIGN_OR_RETURN(std::string body, store_->Read(number_, row));
    LETHE_ASSIGN_OR_RETURN(trailer, TakeTrailer(&body));
    bodies.push_back(std::move(body));
  }
  // Rows behind it are drawn tokens, which came without a meta row.
  if (state_.num_inputs_before(trailer.end_id) != trailer.num_inputs) {
    return absl::DataLossError("stored session: a row of inputs is missing");
  }
  return bodies;
}

absl::StatusOr<DecodedInputs> SessionJournal::ReadInputs() {
  MutexLock lock(&write_mutex_);
  DecodedInputs decoded;
  for (const Segment& segment : state_.segments) {
    for (const StoredRow& row : segment.rows) {
      LETHE_ASSIGN_OR_RETURN(std::string body, store_->Read(number_, row));
      const absl::Status status = DecodeInputs(body, &decoded);
      audit::SecureWipe(&body);
      LETHE_RETURN_IF_ERROR(status);
    }
  }
  if (decoded.inputs.size() != state_.num_inputs()) {
    return absl::DataLossError("stored inputs: a row does not hold what it says");
  }
  return decoded;
}

absl::StatusOr<std::string> SessionJournal::ReadName() { return store_->ReadName(number_); }

int64_t SessionJournal::num_inputs() const {
  MutexLock lock(&write_mutex_);
  return state_.num_inputs();
}

bool SessionJournal::is_empty() const {
  MutexLock lock(&write_mutex_);
  return state_.meta_rows.empty();
}

}  // namespace lethe
