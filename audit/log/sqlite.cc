#include "audit/log/sqlite.h"

#include "absl/strings/str_cat.h"
#include <sqlite3.h>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

absl::Status ToStatus(int code) {
  const std::string message = absl::StrCat("audit log database: ", sqlite3_errstr(code));
  const int primary = code & 0xff;
  if (primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB) return absl::DataLossError(message);
  return absl::UnavailableError(message);
}

}  // namespace

SqliteStatement::SqliteStatement(SqliteStatement&& other) noexcept : statement_(other.statement_) {
  other.statement_ = nullptr;
}

SqliteStatement::~SqliteStatement() { sqlite3_finalize(statement_); }

absl::Status SqliteStatement::BindInt64(int parameter, int64_t value) {
  const int code = sqlite3_bind_int64(statement_, parameter, value);
  return code == SQLITE_OK ? absl::OkStatus() : ToStatus(code);
}

absl::Status SqliteStatement::BindBlob(int parameter, absl::string_view bytes) {
  // A null pointer would bind NULL, which is another value than the empty blob.
  const char* data = bytes.data() == nullptr ? "" : bytes.data();
  const int code = sqlite3_bind_blob64(statement_, parameter, data, bytes.size(), SQLITE_TRANSIENT);
  return code == SQLITE_OK ? absl::OkStatus() : ToStatus(code);
}

absl::StatusOr<bool> SqliteStatement::Step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return ToStatus(code);
}

absl::Status SqliteStatement::Run() {
  LETHE_ASSIGN_OR_RETURN(const bool row, Step());
  LETHE_CHECK(!row);
  return absl::OkStatus();
}

int64_t SqliteStatement::ColumnInt64(int column) const {
  return sqlite3_column_int64(statement_, column);
}

std::string SqliteStatement::ColumnBlob(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const int num_bytes = sqlite3_column_bytes(statement_, column);
  if (data == nullptr) return "";
  return std::string(static_cast<const char*>(data), static_cast<size_t>(num_bytes));
}

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path) {
  sqlite3* handle = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<SqliteDatabase> database(new SqliteDatabase(handle));  // owns it on error too
  if (code != SQLITE_OK) return ToStatus(code);
  // Exclusive locking comes before WAL: then no shared-memory file is made, and a process that gets
  // past the lock file is still refused here.
  for (const char* pragma :
       {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL",
        "PRAGMA secure_delete=ON", "PRAGMA trusted_schema=OFF", "PRAGMA cell_size_check=ON",
        "PRAGMA temp_store=MEMORY"}) {
    LETHE_RETURN_IF_ERROR(database->Execute(pragma));
  }
  return database;
}

SqliteDatabase::~SqliteDatabase() { sqlite3_close_v2(database_); }

absl::Status SqliteDatabase::Execute(const char* sql) {
  const int code = sqlite3_exec(database_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ToStatus(sqlite3_extended_errcode(database_));
}

absl::StatusOr<SqliteStatement> SqliteDatabase::Prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(database_, sql, -1, &statement, nullptr);
  if (code != SQLITE_OK) return ToStatus(code);
  return SqliteStatement(statement);
}

absl::Status SqliteDatabase::TruncateWal() {
  const int code =
      sqlite3_wal_checkpoint_v2(database_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : ToStatus(code);
}

}  // namespace lethe::audit
