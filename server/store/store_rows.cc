// SessionStore: reading.
#include <algorithm>
#include <set>

#include "kernels/base/status_macros.h"
#include "server/store/session_store.h"

namespace lethe {
namespace {

// Behind the last row that could be read, so many places are tried one by one, as a damaged leaf holds few rows; then
// the steps double.
constexpr int kSingleSteps = 64;

// What may lie on damaged pages is not given out again.
constexpr int64_t kUnseenNumbers = int64_t{1} << 32;

}  // namespace

absl::Status SessionStore::LoadCounters() {
  LETHE_ASSIGN_OR_RETURN(heads_, LoadHeads());
  for (const auto& [session, count] : heads_) next_session_ = std::max(next_session_, session + 1);
  LETHE_ASSIGN_OR_RETURN(const LoadedRows loaded, LoadRows());
  std::map<int64_t, RowCount> counts;
  for (const auto& [session, row] : loaded.rows) {
    next_row_id_ = std::max(next_row_id_, row.row_id + 1);
    next_session_ = std::max(next_session_, session + 1);
    counts[session].Add(row.row_id);
  }
  if (loaded.num_damaged_places == 0) {
    // A count that is damaged is made again from rows that are whole.
    heads_.insert(counts.begin(), counts.end());
    return absl::OkStatus();
  }
  next_row_id_ += kUnseenNumbers;
  next_session_ += kUnseenNumbers;
  return absl::OkStatus();
}

absl::Status SessionStore::LoadRowsFrom(int64_t row_id,
                                        std::vector<std::pair<int64_t, StoredRow>>* rows) {
  LETHE_ASSIGN_OR_RETURN(
      audit::SqliteStatement statement,
      database_->Prepare("SELECT row_id, session, kind, slot, generation, first_id, end_id, "
                         "num_inputs, length(body) FROM rows WHERE row_id >= ? ORDER BY row_id"));
  LETHE_RETURN_IF_ERROR(statement.BindInt64(1, row_id));
  while (true) {
    LETHE_ASSIGN_OR_RETURN(const bool found, statement.Step());
    if (!found) return absl::OkStatus();
    StoredRow row;
    row.row_id = statement.ColumnInt64(0);
    row.kind = static_cast<RowKind>(statement.ColumnInt64(2));
    row.key = {static_cast<uint64_t>(statement.ColumnInt64(3)),
               static_cast<uint64_t>(statement.ColumnInt64(4))};
    row.span = {static_cast<uint64_t>(statement.ColumnInt64(5)),
                static_cast<uint64_t>(statement.ColumnInt64(6)), statement.ColumnInt64(7)};
    row.num_bytes = statement.ColumnInt64(8);
    rows->emplace_back(statement.ColumnInt64(1), row);
  }
}

absl::StatusOr<SessionStore::LoadedRows> SessionStore::LoadRows() {
  LoadedRows loaded;
  int64_t from = 1;
  int num_failed = 0;  // since a row could be read
  int64_t step = 1;
  while (true) {
    const size_t before = loaded.rows.size();
    const absl::Status status = LoadRowsFrom(from, &loaded.rows);
    if (status.ok()) return loaded;
    if (!absl::IsDataLoss(status)) return status;
    if (loaded.rows.size() > before) {
      num_failed = 0;
      step = 1;
      from = loaded.rows.back().second.row_id;
    }
    if (num_failed++ == 0) ++loaded.num_damaged_places;
    if (num_failed > kSingleSteps) step *= 2;
    if (step > kUnseenNumbers) return loaded;
    from += step;
  }
}

absl::StatusOr<std::map<int64_t, std::vector<StoredRow>>> SessionStore::AllRows() {
  MutexLock lock(&mutex_);
  LETHE_ASSIGN_OR_RETURN(const LoadedRows loaded, LoadRows());
  std::map<int64_t, std::vector<StoredRow>> by_session;
  for (const auto& [session, row] : loaded.rows) by_session[session].push_back(row);
  return by_session;
}

absl::StatusOr<std::vector<DataKeyRef>> SessionStore::Unreferenced(
    absl::Span<const DataKeyRef> keys) {
  MutexLock lock(&mutex_);
  LETHE_ASSIGN_OR_RETURN(const LoadedRows loaded, LoadRows());
  LETHE_ASSIGN_OR_RETURN(const std::set<DataKeyRef> used, UsedKeys(loaded));
  std::vector<DataKeyRef> free;
  for (const DataKeyRef& key : keys) {
    if (used.count(key) == 0) free.push_back(key);
  }
  return free;
}

absl::StatusOr<audit::Secret32> SessionStore::FindKey(const DataKeyRef& ref) {
  absl::StatusOr<audit::Secret32> key = keys_->Find(ref);
  if (absl::IsNotFound(key.status())) return absl::DataLossError(key.status().message());
  return key;
}

absl::StatusOr<SessionStore::SealedRow> SessionStore::Fetch(const StoredRow& row) {
  MutexLock lock(&mutex_);
  LETHE_ASSIGN_OR_RETURN(audit::Secret32 key, FindKey(row.key));
  LETHE_ASSIGN_OR_RETURN(audit::SqliteStatement statement,
                         database_->Prepare("SELECT body FROM rows WHERE row_id = ?"));
  LETHE_RETURN_IF_ERROR(statement.BindInt64(1, row.row_id));
  LETHE_ASSIGN_OR_RETURN(const bool found, statement.Step());
  if (!found) return absl::DataLossError("session store: a row is missing");
  return SealedRow{std::move(key), statement.ColumnBlob(0)};
}

absl::StatusOr<std::string> SessionStore::Read(int64_t session, const StoredRow& row) {
  LETHE_ASSIGN_OR_RETURN(const SealedRow sealed, Fetch(row));
  return OpenRow(id_, session, row, sealed.key, sealed.body);
}

}  // namespace lethe
