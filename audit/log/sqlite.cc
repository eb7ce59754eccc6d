#include "audit/log/sqlite.h"

#include "absl/strings/str_cat.h"
#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/sync_directory.h"

namespace lethe::audit {
namespace {

struct Setting {
  const char* set;
  const char* read;
  const char* expected;  // the text of the answer
};

// Exclusive locking comes before WAL: then no shared-memory file is made, and a process that gets past a lock file
// is still refused here.
constexpr Setting kSqliteSettings[] = {
    {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA locking_mode", "exclusive"},
    {"PRAGMA journal_mode=WAL", "PRAGMA journal_mode", "wal"},
    {"PRAGMA synchronous=FULL", "PRAGMA synchronous", "2"},
    {"PRAGMA secure_delete=ON", "PRAGMA secure_delete", "1"},
    {"PRAGMA trusted_schema=OFF", "PRAGMA trusted_schema", "0"},
    {"PRAGMA cell_size_check=ON", "PRAGMA cell_size_check", "1"},
    {"PRAGMA temp_store=MEMORY", "PRAGMA temp_store", "2"},
};

absl::Status ToStatus(int code, const char* name) {
  const std::string message = absl::StrCat(name, ": ", sqlite3_errstr(code));
  const int primary = code & 0xff;
  if (primary == SQLITE_FULL) return absl::ResourceExhaustedError(message);
  if (primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB) return absl::DataLossError(message);
  return absl::UnavailableError(message);
}

// SQLite syncs the directory with the first journal, and does not look whether that failed; what failed once may succeed the
// next time without having written. So a new database's name is durable before.
absl::Status MakeFile(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return absl::OkStatus();  // it is there, or SQLite says why it cannot be
  close(descriptor);
  absl::Status synced = SyncParentOf(path);
  if (!synced.ok()) unlink(path.c_str());
  return synced;
}

}  // namespace

SqliteStatement::SqliteStatement(SqliteStatement&& other) noexcept
    : statement_(other.statement_), name_(other.name_) {
  other.statement_ = nullptr;
}

SqliteStatement::~SqliteStatement() { sqlite3_finalize(statement_); }

absl::Status SqliteStatement::BindInt64(int parameter, int64_t value) {
  const int code = sqlite3_bind_int64(statement_, parameter, value);
  return code == SQLITE_OK ? absl::OkStatus() : ToStatus(code, name_);
}

absl::Status SqliteStatement::BindBlob(int parameter, absl::string_view bytes) {
  // A null pointer would bind NULL, which is another value than the empty blob.
  const char* data = bytes.data() == nullptr ? "" : bytes.data();
  const int code = sqlite3_bind_blob64(statement_, parameter, data, bytes.size(), SQLITE_TRANSIENT);
  return code == SQLITE_OK ? absl::OkStatus() : ToStatus(code, name_);
}

absl::StatusOr<bool> SqliteStatement::Step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return ToStatus(code, name_);
}

absl::Status SqliteStatement::Run() {
  LETHE_ASSIGN_OR_RETURN(const bool row, Step());
  LETHE_CHECK(!row);
  // What it would say, Step has said.
  sqlite3_reset(statement_);
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

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path,
                                                                     const char* name) {
  LETHE_RETURN_IF_ERROR(MakeFile(path));
  sqlite3* handle = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &handle,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  // It owns the handle on error too.
  std::unique_ptr<SqliteDatabase> database(new SqliteDatabase(handle, path, name));
  if (code != SQLITE_OK) return ToStatus(code, name);
  LETHE_RETURN_IF_ERROR(database->ApplySettings());
  LETHE_RETURN_IF_ERROR(database->SyncNames());
  return database;
}

absl::Status SqliteDatabase::ApplySettings() {
  for (const Setting& setting : kSqliteSettings) {
    LETHE_RETURN_IF_ERROR(Execute(setting.set));
    LETHE_ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(setting.read));
    LETHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row || statement.ColumnBlob(0) != setting.expected) {
      return absl::FailedPreconditionError(
          absl::StrCat(name_, ": SQLite did not take ", setting.set));
    }
  }
  return absl::OkStatus();
}

// SQLite syncs the name of the write-ahead log some time, and does not look whether that failed.
absl::Status SqliteDatabase::SyncNames() {
  LETHE_RETURN_IF_ERROR(
      Execute("SELECT count(*) FROM sqlite_master"));  // makes the file, unless there are no tables
  return SyncParentOf(path_);
}

SqliteDatabase::~SqliteDatabase() { sqlite3_close_v2(database_); }

absl::Status SqliteDatabase::Execute(const char* sql) {
  const int code = sqlite3_exec(database_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus()
                           : ToStatus(sqlite3_extended_errcode(database_), name_);
}

absl::StatusOr<SqliteStatement> SqliteDatabase::Prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(database_, sql, -1, &statement, nullptr);
  if (code != SQLITE_OK) return ToStatus(code, name_);
  return SqliteStatement(statement, name_);
}

absl::Status SqliteDatabase::TruncateWal() {
  int num_frames = -1;  // left in the log
  const int code = sqlite3_wal_checkpoint_v2(database_, nullptr, SQLITE_CHECKPOINT_TRUNCATE,
                                             &num_frames, nullptr);
  if (code != SQLITE_OK) return ToStatus(code, name_);
  if (num_frames == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(name_, ": the write-ahead log was not truncated"));
}

absl::Status SqliteDatabase::SetSyncedCommits(bool synced) {
  return Execute(synced ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL");
}

}  // namespace lethe::audit
