#include "server/store/session_store.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/byte_io.h"
#include "kernels/base/crash_point.h"
#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "server/store/store_schema.h"

namespace lethe {

SessionStore::SessionStore(const SessionStoreOptions& options, const StoreId& id,
                           std::unique_ptr<audit::SqliteDatabase> database,
                           std::unique_ptr<DataKeys> keys, std::unique_ptr<CommitMark> mark)
    : options_(options),
      id_(id),
      database_(std::move(database)),
      keys_(std::move(keys)),
      mark_(std::move(mark)) {}

SessionStore::~SessionStore() = default;

absl::StatusOr<std::unique_ptr<SessionStore>> SessionStore::Open(
    const SessionStoreOptions& options) {
  const std::string keys_path = options.directory + "/data.keys";
  const bool has_keys = std::filesystem::exists(keys_path);
  LETHE_ASSIGN_OR_RETURN(OpenedDatabase opened,
                         OpenStoreDatabase(options.directory + "/sessions.db", has_keys));
  LETHE_ASSIGN_OR_RETURN(
      std::unique_ptr<DataKeys> keys,
      has_keys ? DataKeys::Open(keys_path, opened.id) : DataKeys::Create(keys_path, opened.id));
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<CommitMark> mark,
                         CommitMark::Open(options.directory + "/commits", opened.id));
  LETHE_RETURN_IF_ERROR(mark->Check(opened.num_commits));
  std::unique_ptr<SessionStore> store(new SessionStore(
      options, opened.id, std::move(opened.database), std::move(keys), std::move(mark)));
  MutexLock lock(&store->mutex_);
  store->num_commits_ = opened.num_commits;
  LETHE_RETURN_IF_ERROR(store->LoadCounters());
  return store;
}

absl::Status SessionStore::Fail(const absl::Status& cause) {
  const absl::Status broken = absl::UnavailableError(
      absl::StrCat("the session store takes no more changes: ", cause.message()));
  if (!FaultActive(Fault::kFailureOutlived)) broken_ = broken;
  if (options_.on_failure) options_.on_failure(broken);
  return broken;
}

absl::Status SessionStore::GiveUp(const absl::Status& cause) {
  MutexLock lock(&mutex_);
  return Fail(cause);
}

absl::StatusOr<RecoveryReport> SessionStore::Recover(
    const std::function<absl::StatusOr<bool>(const audit::Sha256Digest&)>& is_recorded) {
  MutexLock lock(&mutex_);
  RecoveryReport report;
  LETHE_ASSIGN_OR_RETURN(const std::vector<Intent> intents,
                         LoadIntents(&report.num_damaged_intents));
  for (const Intent& intent : intents) {
    LETHE_ASSIGN_OR_RETURN(const bool happened, is_recorded(intent.leaf_hash));
    LETHE_RETURN_IF_ERROR(Settle(intent, happened));
    ++(happened ? report.finished : report.abandoned);
  }
  // The keys of rows that cannot be read go with those of rows that are gone: nothing else tells the two apart.
  LETHE_ASSIGN_OR_RETURN(const LoadedRows loaded, LoadRows());
  report.num_damaged_places = loaded.num_damaged_places;
  LETHE_ASSIGN_OR_RETURN(const std::set<DataKeyRef> used, UsedKeys(loaded));
  if (absl::Status status = keys_->DestroyAllBut(used); !status.ok()) return Fail(status);
  CrashPoint("unused keys are destroyed");
  if (absl::Status status = database_->TruncateWal(); !status.ok()) return Fail(status);
  return report;
}

int64_t SessionStore::NewSession() {
  MutexLock lock(&mutex_);
  return next_session_++;
}

absl::StatusOr<DataKeyRef> SessionStore::NewKey() {
  MutexLock lock(&mutex_);
  LETHE_RETURN_IF_ERROR(broken_);
  return keys_->NewKey();
}

StoreCosts SessionStore::costs() const {
  MutexLock lock(&mutex_);
  return costs_;
}

size_t SessionStore::num_keys() const {
  MutexLock lock(&mutex_);
  return keys_->num_keys();
}

absl::Status SessionStore::Transact(Durability durability,
                                    const std::function<absl::Status()>& work) {
  LETHE_RETURN_IF_ERROR(broken_);
  // What the ledger may or may not hold decides what a start erases.
  if (ledger_ != nullptr) LETHE_RETURN_IF_ERROR(ledger_->failure());
  if (keys_->has_unsynced() && !FaultActive(Fault::kNewKeysNotSynced)) {
    const CostTimer timer(&costs_.key_sync);
    if (absl::Status status = keys_->Sync(); !status.ok()) return Fail(status);
  }
  CrashPoint("new keys are synced");
  const CostTimer timer(&costs_.transaction);
  const bool synced = durability == Durability::kSynced && !FaultActive(Fault::kCommitNotSynced);
  if (synced != synced_commits_) {
    LETHE_RETURN_IF_ERROR(database_->SetSyncedCommits(synced));
    synced_commits_ = synced;
  }
  counting_.clear();
  LETHE_RETURN_IF_ERROR(database_->Execute("BEGIN IMMEDIATE"));
  const LedgerPosition before = ledger_position_;
  absl::Status status = work();
  if (status.ok()) status = UpdateLedgerPosition();
  if (status.ok()) status = WriteHeads();
  if (status.ok()) status = CountCommit();
  const bool worked = status.ok();
  if (worked) status = database_->Execute("COMMIT");
  CrashPoint("a transaction is committed");
  if (status.ok()) {
    for (const auto& [session, count] : counting_) heads_[session] = count;
    ++num_commits_;
    if (synced) mark_->Note(num_commits_);
    return status;
  }
  ledger_position_ = before;
  // Fails only where SQLite has rolled back by itself already.
  database_->Execute("ROLLBACK").IgnoreError();
  return worked && !absl::IsResourceExhausted(status) ? Fail(status) : status;
}

absl::Status SessionStore::CountCommit() {
  LETHE_ASSIGN_OR_RETURN(audit::SqliteStatement statement,
                         database_->Prepare("UPDATE identity SET commits = ? WHERE id = 1"));
  LETHE_RETURN_IF_ERROR(statement.BindInt64(1, static_cast<int64_t>(num_commits_ + 1)));
  return statement.Run();
}

absl::StatusOr<std::vector<StoredRow>> SessionStore::Insert(const StoreChange& change) {
  std::vector<StoredRow> stored;
  RowCount* const count = Counting(change.session);
  LETHE_ASSIGN_OR_RETURN(
      audit::SqliteStatement statement,
      database_->Prepare("INSERT INTO rows(row_id, session, kind, slot, generation, first_id, "
                         "end_id, num_inputs, body) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  for (const NewRow& row : change.add) {
    LETHE_ASSIGN_OR_RETURN(const audit::Secret32 key, keys_->Find(row.key));
    stored.push_back({next_row_id_++, row.kind, row.key, row.span});
    const int64_t numbers[] = {stored.back().row_id,
                               change.session,
                               static_cast<int64_t>(row.kind),
                               static_cast<int64_t>(row.key.slot),
                               static_cast<int64_t>(row.key.generation),
                               static_cast<int64_t>(row.span.first_id),
                               static_cast<int64_t>(row.span.end_id),
                               row.span.num_inputs};
    int parameter = 0;
    for (const int64_t number : numbers) {
      LETHE_RETURN_IF_ERROR(statement.BindInt64(++parameter, number));
    }
    const std::string sealed = Seal(change.session, stored.back(), key, row.body);
    stored.back().num_bytes = static_cast<int64_t>(sealed.size());
    LETHE_RETURN_IF_ERROR(statement.BindBlob(++parameter, sealed));
    LETHE_RETURN_IF_ERROR(statement.Run());
    count->Add(stored.back().row_id);
  }
  return stored;
}

std::string SessionStore::Seal(int64_t session, const StoredRow& row, const audit::Secret32& key,
                               absl::string_view body) {
  const CostTimer timer(&costs_.seal);
  return SealRow(id_, session, row, key, body);
}

absl::Status SessionStore::Remove(int64_t session, absl::Span<const int64_t> row_ids) {
  RowCount* const count = Counting(session);
  LETHE_ASSIGN_OR_RETURN(audit::SqliteStatement statement,
                         database_->Prepare("DELETE FROM rows WHERE row_id = ?"));
  for (const int64_t row_id : row_ids) {
    LETHE_RETURN_IF_ERROR(statement.BindInt64(1, row_id));
    LETHE_RETURN_IF_ERROR(statement.Run());
    count->Drop(row_id);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoredRow>> SessionStore::Apply(absl::Span<const StoreChange> changes,
                                                           Durability durability) {
  MutexLock lock(&mutex_);
  std::vector<StoredRow> stored;
  const auto work = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
    for (const StoreChange& change : changes) {
      LETHE_ASSIGN_OR_RETURN(const std::vector<StoredRow> added, Insert(change));
      stored.insert(stored.end(), added.begin(), added.end());
      LETHE_RETURN_IF_ERROR(WriteName(change));
      if (FaultActive(Fault::kOldRowsKept)) continue;
      LETHE_RETURN_IF_ERROR(Remove(change.session, change.remove));
      if (change.is_all) CountAnew(change.session, added);
    }
    return absl::OkStatus();
  };
  LETHE_RETURN_IF_ERROR(Transact(durability, work));
  return stored;
}

absl::StatusOr<std::vector<StoredRow>> SessionStore::Prepare(const StoreChange& change,
                                                             const audit::Sha256Digest& leaf_hash) {
  MutexLock lock(&mutex_);
  Intent intent{change.session, leaf_hash, {}, change.remove};
  std::vector<StoredRow> stored;
  const auto work = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
    LETHE_ASSIGN_OR_RETURN(stored, Insert(change));
    for (const StoredRow& row : stored) intent.staged.push_back(row.row_id);
    if (FaultActive(Fault::kIntentNotWritten)) return Remove(change.session, intent.doomed);
    return InsertIntent(intent);
  };
  LETHE_RETURN_IF_ERROR(Transact(Durability::kSynced, work));
  intents_[change.session] = std::move(intent);
  return stored;
}

absl::Status SessionStore::Settle(const Intent& intent, bool happened) {
  return Transact(Durability::kSynced, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
    if (!happened || !FaultActive(Fault::kOldRowsKept)) {
      LETHE_RETURN_IF_ERROR(Remove(intent.session, happened ? intent.doomed : intent.staged));
    }
    LETHE_ASSIGN_OR_RETURN(audit::SqliteStatement statement,
                           database_->Prepare("DELETE FROM intents WHERE session = ?"));
    LETHE_RETURN_IF_ERROR(statement.BindInt64(1, intent.session));
    return statement.Run();
  });
}

absl::Status SessionStore::SettleIntentOf(int64_t session, bool happened) {
  MutexLock lock(&mutex_);
  LETHE_RETURN_IF_ERROR(broken_);
  const auto found = intents_.find(session);
  if (found == intents_.end()) {
    return absl::FailedPreconditionError("session store: nothing is prepared for the session");
  }
  // Nothing may be answered from here on: the log says one thing and the rows, for want of space perhaps, another.
  if (absl::Status status = Settle(found->second, happened); !status.ok()) {
    return FaultActive(Fault::kUnfinishedServed) ? status : Fail(status);
  }
  intents_.erase(found);
  return absl::OkStatus();
}

absl::Status SessionStore::Finish(int64_t session) { return SettleIntentOf(session, true); }

absl::Status SessionStore::Abandon(int64_t session) { return SettleIntentOf(session, false); }

absl::Status SessionStore::Erase(absl::Span<const DataKeyRef> keys) {
  MutexLock lock(&mutex_);
  LETHE_RETURN_IF_ERROR(broken_);
  {
    const CostTimer timer(&costs_.key_erasure);
    if (absl::Status status = keys_->Destroy(keys); !status.ok()) return Fail(status);
  }
  CrashPoint("old keys are destroyed");
  if (FaultActive(Fault::kWalKept)) return absl::OkStatus();
  const CostTimer timer(&costs_.wal_truncation);
  if (absl::Status status = database_->TruncateWal(); !status.ok()) return Fail(status);
  CrashPoint("the write-ahead log is truncated");
  return absl::OkStatus();
}

}  // namespace lethe
