#include "audit/log/log_store.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/log/leaf.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

// "Leth" in ASCII, and the version of the tables below.
constexpr int64_t kApplicationId = 0x4c657468;
constexpr int64_t kSchemaVersion = 1;
constexpr char kCreateSchema[] = R"(
BEGIN IMMEDIATE;
CREATE TABLE identity(id INTEGER PRIMARY KEY CHECK(id = 1), vkey BLOB NOT NULL);
CREATE TABLE leaves(leaf_index INTEGER PRIMARY KEY, leaf BLOB NOT NULL, leaf_hash BLOB NOT NULL);
CREATE INDEX leaves_by_hash ON leaves(leaf_hash);
CREATE TABLE heads(tree_size INTEGER PRIMARY KEY, checkpoint BLOB NOT NULL);
CREATE TABLE bodies(leaf_index INTEGER PRIMARY KEY, body BLOB NOT NULL);
PRAGMA application_id = 1281717352;
PRAGMA user_version = 1;
COMMIT;
)";

absl::StatusOr<int64_t> QueryInt64(SqliteDatabase* database, const char* sql) {
  LETHE_ASSIGN_OR_RETURN(SqliteStatement statement, database->Prepare(sql));
  LETHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
  return row ? statement.ColumnInt64(0) : 0;
}

// The first column of the first row.
absl::StatusOr<std::string> QueryBlob(SqliteStatement* statement, absl::string_view what) {
  LETHE_ASSIGN_OR_RETURN(const bool row, statement->Step());
  if (!row) return absl::NotFoundError(absl::StrCat("audit log: no such ", what));
  return statement->ColumnBlob(0);
}

}  // namespace

LogStore::LogStore(std::unique_ptr<SqliteDatabase> database) : database_(std::move(database)) {}

absl::StatusOr<std::unique_ptr<LogStore>> LogStore::Open(const std::string& path) {
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> database,
                         SqliteDatabase::Open(path, "audit log database"));
  LETHE_ASSIGN_OR_RETURN(const int64_t num_tables,
                         QueryInt64(database.get(), "SELECT count(*) FROM sqlite_master"));
  if (num_tables == 0) {
    LETHE_RETURN_IF_ERROR(database->Execute(kCreateSchema));
    LETHE_RETURN_IF_ERROR(database->SyncNames());
  }
  LETHE_ASSIGN_OR_RETURN(const int64_t application_id,
                         QueryInt64(database.get(), "PRAGMA application_id"));
  LETHE_ASSIGN_OR_RETURN(const int64_t version, QueryInt64(database.get(), "PRAGMA user_version"));
  if (application_id != kApplicationId || version != kSchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("audit log database: want schema version ", kSchemaVersion));
  }
  return std::unique_ptr<LogStore>(new LogStore(std::move(database)));
}

absl::Status LogStore::Begin() { return database_->Execute("BEGIN IMMEDIATE"); }
absl::Status LogStore::Commit() { return database_->Execute("COMMIT"); }

void LogStore::Rollback() {
  // Fails only where SQLite has rolled back by itself already.
  database_->Execute("ROLLBACK").IgnoreError();
}

absl::StatusOr<std::string> LogStore::Identity() {
  LETHE_ASSIGN_OR_RETURN(SqliteStatement statement,
                         database_->Prepare("SELECT vkey FROM identity WHERE id = 1"));
  return QueryBlob(&statement, "identity");
}

absl::Status LogStore::SetIdentity(absl::string_view vkey) {
  LETHE_ASSIGN_OR_RETURN(SqliteStatement statement,
                         database_->Prepare("INSERT INTO identity(id, vkey) VALUES(1, ?)"));
  LETHE_RETURN_IF_ERROR(statement.BindBlob(1, vkey));
  return statement.Run();
}

absl::Status LogStore::InsertLeaf(const LeafRow& row) {
  const auto leaf_index = static_cast<int64_t>(row.leaf_index);
  LETHE_ASSIGN_OR_RETURN(
      SqliteStatement leaf,
      database_->Prepare("INSERT INTO leaves(leaf_index, leaf, leaf_hash) VALUES(?, ?, ?)"));
  LETHE_RETURN_IF_ERROR(leaf.BindInt64(1, leaf_index));
  LETHE_RETURN_IF_ERROR(leaf.BindBlob(2, row.leaf));
  LETHE_RETURN_IF_ERROR(leaf.BindBlob(3, AsStringView(row.leaf_hash)));
  LETHE_RETURN_IF_ERROR(leaf.Run());
  LETHE_ASSIGN_OR_RETURN(SqliteStatement body,
                         database_->Prepare("INSERT INTO bodies(leaf_index, body) VALUES(?, ?)"));
  LETHE_RETURN_IF_ERROR(body.BindInt64(1, leaf_index));
  LETHE_RETURN_IF_ERROR(body.BindBlob(2, row.body));
  return body.Run();
}

absl::Status LogStore::InsertHead(const StoredHead& head) {
  LETHE_ASSIGN_OR_RETURN(
      SqliteStatement statement,
      database_->Prepare("INSERT INTO heads(tree_size, checkpoint) VALUES(?, ?)"));
  LETHE_RETURN_IF_ERROR(statement.BindInt64(1, static_cast<int64_t>(head.tree_size)));
  LETHE_RETURN_IF_ERROR(statement.BindBlob(2, head.checkpoint));
  return statement.Run();
}

absl::StatusOr<StoredHead> LogStore::LastHead() {
  LETHE_ASSIGN_OR_RETURN(
      SqliteStatement statement,
      database_->Prepare(
          "SELECT tree_size, checkpoint FROM heads ORDER BY tree_size DESC LIMIT 1"));
  LETHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) return absl::NotFoundError("audit log: no such head");
  return StoredHead{static_cast<uint64_t>(statement.ColumnInt64(0)), statement.ColumnBlob(1)};
}

absl::StatusOr<std::vector<std::string>> LogStore::Heads() {
  LETHE_ASSIGN_OR_RETURN(SqliteStatement statement,
                         database_->Prepare("SELECT checkpoint FROM heads ORDER BY tree_size"));
  std::vector<std::string> heads;
  while (true) {
    LETHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) return heads;
    heads.push_back(statement.ColumnBlob(0));
  }
}

absl::Status LogStore::ForEachLeaf(const LeafVisitor& visit) {
  LETHE_ASSIGN_OR_RETURN(
      SqliteStatement statement,
      database_->Prepare("SELECT leaf_index, leaf, leaf_hash FROM leaves ORDER BY leaf_index"));
  while (true) {
    LETHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) return absl::OkStatus();
    visit(static_cast<uint64_t>(statement.ColumnInt64(0)), statement.ColumnBlob(1),
          statement.ColumnBlob(2));
  }
}

absl::StatusOr<MerkleTree> LogStore::LoadTree() {
  MerkleTree tree;
  absl::Status status;
  LETHE_RETURN_IF_ERROR(
      ForEachLeaf([&](uint64_t leaf_index, const std::string& leaf, const std::string& leaf_hash) {
        if (!status.ok()) return;
        if (leaf_index != tree.num_leaves()) {
          status = absl::DataLossError("audit log: a stored leaf is missing");
          return;
        }
        const Sha256Digest hash = MerkleLeafHash(leaf);
        if (leaf.size() != kLogLeafBytes || leaf_hash != AsStringView(hash)) {
          status = absl::DataLossError("audit log: a stored leaf has changed");
          return;
        }
        tree.Append(hash);
      }));
  if (!status.ok()) return status;
  return tree;
}

absl::StatusOr<std::string> LogStore::Leaf(uint64_t leaf_index) {
  LETHE_ASSIGN_OR_RETURN(SqliteStatement statement,
                         database_->Prepare("SELECT leaf FROM leaves WHERE leaf_index = ?"));
  LETHE_RETURN_IF_ERROR(statement.BindInt64(1, static_cast<int64_t>(leaf_index)));
  return QueryBlob(&statement, "leaf");
}

absl::StatusOr<uint64_t> LogStore::FindLeaf(const Sha256Digest& leaf_hash) {
  LETHE_ASSIGN_OR_RETURN(
      SqliteStatement statement,
      database_->Prepare(
          "SELECT leaf_index FROM leaves WHERE leaf_hash = ? ORDER BY leaf_index LIMIT 1"));
  LETHE_RETURN_IF_ERROR(statement.BindBlob(1, AsStringView(leaf_hash)));
  LETHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
  if (!row) return absl::NotFoundError("audit log: no such leaf");
  return static_cast<uint64_t>(statement.ColumnInt64(0));
}

absl::StatusOr<std::string> LogStore::Body(uint64_t leaf_index) {
  LETHE_ASSIGN_OR_RETURN(SqliteStatement statement,
                         database_->Prepare("SELECT body FROM bodies WHERE leaf_index = ?"));
  LETHE_RETURN_IF_ERROR(statement.BindInt64(1, static_cast<int64_t>(leaf_index)));
  return QueryBlob(&statement, "body");
}

absl::Status LogStore::EraseBody(uint64_t leaf_index) {
  {
    LETHE_ASSIGN_OR_RETURN(SqliteStatement statement,
                           database_->Prepare("DELETE FROM bodies WHERE leaf_index = ?"));
    LETHE_RETURN_IF_ERROR(statement.BindInt64(1, static_cast<int64_t>(leaf_index)));
    LETHE_RETURN_IF_ERROR(statement.Run());
  }
  return database_->TruncateWal();
}

}  // namespace lethe::audit
