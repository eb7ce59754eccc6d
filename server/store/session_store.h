// SessionStore: the encrypted rows that sessions are recovered from, and their erasure, without knowing what they say.
//
// Equation:  body = AES-256-GCM(data key, associated, plain); associated = "lethe-row-v1", store id, and everything
//            else that the row says (session, kind, row_id, key, span), so that no row passes for another.
// Shapes:    directory holds sessions.db (SQLite: rows, intents, identity) and data.keys (data_keys.h); formats in
//            docs/data-directory.md. Rows are cells of one plain rowid table without an index, added at its end: then
//            secure_delete reaches every copy.
// Units:     session: a number given out here, 0 for the server's own rows. row_ids from 1.
// Requires:  the SQLite settings of audit/log/sqlite.h. Nobody else uses the directory (the caller's lock file).
// Rejects:   Open: FAILED_PRECONDITION: another schema, keys of another store, or one of the two files without the
//            other; DATA_LOSS: a file is damaged as a whole, or the database lacks changes that were durable
//            (commit_mark.h). Rows on a damaged page are left out of AllRows; RecoveryReport counts such pages, and
//            intents whose checksum does not fit, which are left alone: the sessions they belong to do not add up. Read: DATA_LOSS when key or body are not those that
//            were written. Apply, Prepare: RESOURCE_EXHAUSTED when the disk is full: nothing changed.
// Effects:   Apply is one transaction, durable (or in the operating system's hands, Durability) when it returns; new
//            keys are synced before it. After a sync or a commit that failed nobody knows what is on disk:
//            on_failure is called, which should end the process, and if it returns every later call fails. Prepare,
//            Finish, Abandon, Erase: the protocol below. NewKey is as durable as the next Apply or Prepare.
// Numerics:  none. Apply with kSynced costs one sync of the write-ahead log, two with new keys.
// Threads:   safe; transactions run one after the other.
//
// A change that a record in the audit log must go with (Forget, selection, certificate):
//   1 Prepare   one transaction: the new rows, under new keys where something goes, and an intent with the hash of the
//               record's leaf, the new rows and the rows to remove. Nobody sees the new rows yet.
//   2           the record is appended to the log: the moment at which the change has happened.
//   3 Finish    one transaction: the old rows and the intent go.
//   4 Erase     the slots of the old keys are overwritten and synced, the write-ahead log is truncated and found
//               empty; only then may the change be answered.
// A kill before 2 leaves an intent without a record: Recover removes the new rows. A kill after 2 leaves an intent with
// a record: Recover finishes it. Then Recover destroys every key that no row refers to, which completes step 4 for
// whatever was under way, and truncates the write-ahead log.
#ifndef LETHE_SERVER_STORE_SESSION_STORE_H_
#define LETHE_SERVER_STORE_SESSION_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "audit/crypto/sha256.h"
#include "audit/log/sqlite.h"
#include "kernels/base/mutex.h"
#include "server/store/commit_mark.h"
#include "server/store/data_keys.h"
#include "server/store/erasure_ledger.h"
#include "server/store/row.h"
#include "server/store/store_costs.h"

namespace lethe {

struct StoreChange {
  int64_t session = 0;
  std::vector<NewRow> add;
  std::vector<int64_t> remove;  // row_ids
  bool is_all = false;  // nothing else is left of the session: its count of rows begins anew
  // Of a session that begins: by what it is known when its rows are damaged, sealed under a key that is not its own.
  std::string name;
  DataKeyRef name_key;
};

enum class Durability {
  kSynced,      // survives the loss of power
  kHandedOver,  // survives the process; the next kSynced transaction makes it durable
};

struct SessionStoreOptions {
  std::string directory;                                // exists
  std::function<void(const absl::Status&)> on_failure;  // a commit or sync failed
};

struct RecoveryReport {
  int64_t finished = 0;   // changes whose record is in the log
  int64_t abandoned = 0;  // changes without one
  int64_t num_damaged_intents = 0;
  int64_t num_damaged_places = 0;  // of the rows' table
};

class SessionStore {
 public:
  static absl::StatusOr<std::unique_ptr<SessionStore>> Open(const SessionStoreOptions& options);
  ~SessionStore();
  SessionStore(const SessionStore&) = delete;
  SessionStore& operator=(const SessionStore&) = delete;

  // Before anything else after Open: settles the intents; `is_recorded` says whether the log has the leaf.
  absl::StatusOr<RecoveryReport> Recover(
      const std::function<absl::StatusOr<bool>(const audit::Sha256Digest&)>& is_recorded);

  // All rows by session, in row_id order.
  absl::StatusOr<std::map<int64_t, std::vector<StoredRow>>> AllRows();
  absl::StatusOr<std::string> Read(int64_t session, const StoredRow& row);
  // Sessions that lack rows, or have some that are not theirs: by a count that is kept apart. Where that is damaged and rows
  // are too, all that have no count.
  absl::StatusOr<std::set<int64_t>> Incomplete();
  // What StoreChange::name said.
  absl::StatusOr<std::string> ReadName(int64_t session);

  // How far the erasure ledger is in force here. From UseLedger on, which comes before Recover, every transaction brings
  // that up to date; StoreLedgerPosition is one that does nothing else.
  absl::StatusOr<LedgerPosition> ReadLedgerPosition();
  void UseLedger(const ErasureLedger* ledger);
  absl::Status StoreLedgerPosition();

  int64_t NewSession();
  absl::StatusOr<DataKeyRef> NewKey();

  // The rows added, in order.
  absl::StatusOr<std::vector<StoredRow>> Apply(absl::Span<const StoreChange> changes,
                                               Durability durability);
  absl::StatusOr<std::vector<StoredRow>> Prepare(const StoreChange& change,
                                                 const audit::Sha256Digest& leaf_hash);
  absl::Status Finish(int64_t session);
  absl::Status Abandon(int64_t session);
  absl::Status Erase(absl::Span<const DataKeyRef> keys);
  // Those that no row names.
  absl::StatusOr<std::vector<DataKeyRef>> Unreferenced(absl::Span<const DataKeyRef> keys);
  // As after a failed commit, for a failure elsewhere that leaves open what has happened.
  absl::Status GiveUp(const absl::Status& cause);

  size_t num_keys() const;
  StoreCosts costs() const;

 private:
  struct SealedRow {
    audit::Secret32 key;
    std::string body;
  };
  struct Intent {
    int64_t session = 0;
    audit::Sha256Digest leaf_hash{};
    std::vector<int64_t> staged;
    std::vector<int64_t> doomed;
  };

  SessionStore(const SessionStoreOptions& options, const StoreId& id,
               std::unique_ptr<audit::SqliteDatabase> database, std::unique_ptr<DataKeys> keys,
               std::unique_ptr<CommitMark> mark);

  // What a session's head says of its rows: how many, and the sum of their row_ids.
  struct RowCount {
    int64_t num_rows = 0;
    uint64_t row_sum = 0;
    void Add(int64_t row_id) {
      ++num_rows;
      row_sum += static_cast<uint64_t>(row_id);
    }
    void Drop(int64_t row_id) {
      --num_rows;
      row_sum -= static_cast<uint64_t>(row_id);
    }
    bool operator==(const RowCount& other) const = default;
  };
  // By row_id.
  struct LoadedRows {
    std::vector<std::pair<int64_t, StoredRow>> rows;  // with their sessions
    int64_t num_damaged_places = 0;
  };

  absl::Status LoadCounters() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::vector<Intent>> LoadIntents(int64_t* num_damaged)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // By rows and by names.
  absl::StatusOr<std::set<DataKeyRef>> UsedKeys(const LoadedRows& loaded)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<LoadedRows> LoadRows() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LoadRowsFrom(int64_t row_id, std::vector<std::pair<int64_t, StoredRow>>* rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::map<int64_t, RowCount>> LoadHeads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the transaction under way makes of a session's count.
  RowCount* Counting(int64_t session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountAnew(int64_t session, absl::Span<const StoredRow> rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteHeads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteName(const StoreChange& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CountCommit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs `work` between BEGIN and COMMIT.
  absl::Status Transact(Durability durability, const std::function<absl::Status()>& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::vector<StoredRow>> Insert(const StoreChange& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Seal(int64_t session, const StoredRow& row, const audit::Secret32& key,
                   absl::string_view body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of something stored: DATA_LOSS where the key was destroyed.
  absl::StatusOr<audit::Secret32> FindKey(const DataKeyRef& ref)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What Read opens, without the lock.
  absl::StatusOr<SealedRow> Fetch(const StoredRow& row) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Remove(int64_t session, absl::Span<const int64_t> row_ids)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status InsertIntent(const Intent& intent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes the intent and one of its lists of rows.
  absl::Status Settle(const Intent& intent, bool happened) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SettleIntentOf(int64_t session, bool happened) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status UpdateLedgerPosition() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Fail(const absl::Status& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SessionStoreOptions options_;
  const StoreId id_;
  mutable Mutex mutex_;
  const std::unique_ptr<audit::SqliteDatabase> database_;
  const std::unique_ptr<DataKeys> keys_;
  const std::unique_ptr<CommitMark> mark_;
  int64_t next_row_id_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t next_session_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<int64_t, Intent> intents_ ABSL_GUARDED_BY(mutex_);  // by session
  std::map<int64_t, RowCount> heads_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, RowCount> counting_ ABSL_GUARDED_BY(mutex_);  // of the transaction under way
  uint64_t num_commits_ ABSL_GUARDED_BY(mutex_) = 0;
  bool synced_commits_ ABSL_GUARDED_BY(mutex_) = true;
  const ErasureLedger* ledger_ ABSL_GUARDED_BY(mutex_) = nullptr;
  LedgerPosition ledger_position_ ABSL_GUARDED_BY(mutex_);  // as stored
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
  StoreCosts costs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lethe

#endif  // LETHE_SERVER_STORE_SESSION_STORE_H_
