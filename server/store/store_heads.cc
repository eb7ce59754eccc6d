// SessionStore: what is kept of each session apart from its rows: how many there are, and its name.
#include "kernels/base/byte_io.h"
#include "kernels/base/status_macros.h"
#include "server/store/session_store.h"

namespace lethe {
namespace {

std::string HeadChecksum(int64_t session, int64_t num_rows, uint64_t row_sum) {
  ByteWriter writer;
  writer.String("lethe-head-v1");
  writer.I64(session);
  writer.I64(num_rows);
  writer.U64(row_sum);
  return std::string(audit::AsStringView(audit::Sha256Of(writer.bytes())));
}

// A damaged page of heads says nothing of the rows.
bool Goes(const absl::StatusOr<bool>& found) { return found.ok() && *found; }

}  // namespace

absl::StatusOr<std::map<int64_t, SessionStore::RowCount>> SessionStore::LoadHeads() {
  LETHE_ASSIGN_OR_RETURN(
      audit::SqliteStatement statement,
      database_->Prepare("SELECT session, num_rows, row_sum, checksum FROM heads"));
  std::map<int64_t, RowCount> heads;
  while (true) {
    const absl::StatusOr<bool> found = statement.Step();
    if (!found.ok() && !absl::IsDataLoss(found.status())) return found.status();
    if (!Goes(found)) return heads;
    const int64_t session = statement.ColumnInt64(0);
    const RowCount count{statement.ColumnInt64(1), static_cast<uint64_t>(statement.ColumnInt64(2))};
    if (statement.ColumnBlob(3) == HeadChecksum(session, count.num_rows, count.row_sum)) {
      heads[session] = count;
    }
  }
}

SessionStore::RowCount* SessionStore::Counting(int64_t session) {
  const auto head = heads_.find(session);
  const auto [place, is_new] =
      counting_.try_emplace(session, head == heads_.end() ? RowCount() : head->second);
  return &place->second;
}

void SessionStore::CountAnew(int64_t session, absl::Span<const StoredRow> rows) {
  RowCount* const count = Counting(session);
  *count = RowCount();
  for (const StoredRow& row : rows) count->Add(row.row_id);
}

absl::Status SessionStore::WriteHeads() {
  LETHE_ASSIGN_OR_RETURN(
      audit::SqliteStatement write,
      database_->Prepare(
          "INSERT INTO heads(session, num_rows, row_sum, checksum, slot, generation, "
          "name) VALUES(?1, ?2, ?3, ?4, 0, 0, x'') ON CONFLICT(session) DO UPDATE SET "
          "num_rows = ?2, row_sum = ?3, checksum = ?4"));
  LETHE_ASSIGN_OR_RETURN(audit::SqliteStatement drop,
                         database_->Prepare("DELETE FROM heads WHERE session = ?"));
  for (const auto& [session, count] : counting_) {
    if (count.num_rows == 0) {
      LETHE_RETURN_IF_ERROR(drop.BindInt64(1, session));
      LETHE_RETURN_IF_ERROR(drop.Run());
      continue;
    }
    LETHE_RETURN_IF_ERROR(write.BindInt64(1, session));
    LETHE_RETURN_IF_ERROR(write.BindInt64(2, count.num_rows));
    LETHE_RETURN_IF_ERROR(write.BindInt64(3, static_cast<int64_t>(count.row_sum)));
    LETHE_RETURN_IF_ERROR(write.BindBlob(4, HeadChecksum(session, count.num_rows, count.row_sum)));
    LETHE_RETURN_IF_ERROR(write.Run());
  }
  return absl::OkStatus();
}

absl::Status SessionStore::WriteName(const StoreChange& change) {
  if (change.name.empty()) return absl::OkStatus();
  LETHE_ASSIGN_OR_RETURN(const audit::Secret32 key, keys_->Find(change.name_key));
  LETHE_ASSIGN_OR_RETURN(
      audit::SqliteStatement statement,
      database_->Prepare(
          "INSERT INTO heads(session, num_rows, row_sum, checksum, slot, generation, "
          "name) VALUES(?, 0, 0, x'', ?, ?, ?)"));
  LETHE_RETURN_IF_ERROR(statement.BindInt64(1, change.session));
  LETHE_RETURN_IF_ERROR(statement.BindInt64(2, static_cast<int64_t>(change.name_key.slot)));
  LETHE_RETURN_IF_ERROR(statement.BindInt64(3, static_cast<int64_t>(change.name_key.generation)));
  LETHE_RETURN_IF_ERROR(statement.BindBlob(4, SealName(id_, change.session, key, change.name)));
  return statement.Run();
}

absl::StatusOr<std::string> SessionStore::ReadName(int64_t session) {
  MutexLock lock(&mutex_);
  LETHE_ASSIGN_OR_RETURN(
      audit::SqliteStatement statement,
      database_->Prepare("SELECT slot, generation, name FROM heads WHERE session = ?"));
  LETHE_RETURN_IF_ERROR(statement.BindInt64(1, session));
  if (!Goes(statement.Step())) return absl::DataLossError("session store: a name is missing");
  if (statement.ColumnBlob(2).empty()) return absl::NotFoundError("session store: no name is kept");
  const DataKeyRef ref{static_cast<uint64_t>(statement.ColumnInt64(0)),
                       static_cast<uint64_t>(statement.ColumnInt64(1))};
  LETHE_ASSIGN_OR_RETURN(const audit::Secret32 key, FindKey(ref));
  return OpenName(id_, session, key, statement.ColumnBlob(2));
}

absl::StatusOr<std::set<int64_t>> SessionStore::Incomplete() {
  MutexLock lock(&mutex_);
  LETHE_ASSIGN_OR_RETURN(const LoadedRows loaded, LoadRows());
  std::map<int64_t, RowCount> counts;
  for (const auto& [session, row] : loaded.rows) {
    counts[session].Add(row.row_id);
  }
  std::set<int64_t> incomplete;
  for (const auto& [session, head] : heads_) {
    if (counts[session] != head && head.num_rows > 0) incomplete.insert(session);
  }
  for (const auto& [session, count] : counts) {
    if (heads_.count(session) == 0) incomplete.insert(session);
  }
  return incomplete;
}

absl::StatusOr<std::set<DataKeyRef>> SessionStore::UsedKeys(const LoadedRows& loaded) {
  std::set<DataKeyRef> used;
  for (const auto& [session, row] : loaded.rows) used.insert(row.key);
  LETHE_ASSIGN_OR_RETURN(audit::SqliteStatement statement,
                         database_->Prepare("SELECT DISTINCT slot, generation FROM heads"));
  while (Goes(statement.Step())) {
    used.insert({static_cast<uint64_t>(statement.ColumnInt64(0)),
                 static_cast<uint64_t>(statement.ColumnInt64(1))});
  }
  return used;
}

}  // namespace lethe
