// SqliteDatabase, SqliteStatement: the little of SQLite that the audit log and the session store need.
//
// Equation:  none.
// Shapes:    bind parameters count from 1, columns from 0, as in SQLite.
// Units:     none.
// Requires:  Column functions after a Step that returned true, with the column's type.
// Rejects:   DATA_LOSS: SQLite finds the file damaged or no database; RESOURCE_EXHAUSTED: the disk is full;
//            UNAVAILABLE: every other error. Messages hold `name` and SQLite's error name, never stored
//            content.
// Effects:   Open sets kSqliteSettings, reads them back and refuses (FAILED_PRECONDITION) what SQLite did not
//            take: WAL in an exclusively locked file, synchronous=FULL (every commit is synced),
//            secure_delete=ON (what is deleted is overwritten with zeros).
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_AUDIT_LOG_SQLITE_H_
#define LETHE_AUDIT_LOG_SQLITE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct sqlite3;
struct sqlite3_stmt;

namespace lethe::audit {

class SqliteStatement {
 public:
  SqliteStatement(SqliteStatement&& other) noexcept;
  ~SqliteStatement();
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  absl::Status BindInt64(int parameter, int64_t value);
  absl::Status BindBlob(int parameter, absl::string_view bytes);
  // True when there is a row, false when done.
  absl::StatusOr<bool> Step();
  // Steps to the end of a statement that returns no rows; it can be bound and run again.
  absl::Status Run();
  int64_t ColumnInt64(int column) const;
  std::string ColumnBlob(int column) const;

 private:
  friend class SqliteDatabase;
  SqliteStatement(sqlite3_stmt* statement, const char* name) : statement_(statement), name_(name) {}
  sqlite3_stmt* statement_;
  const char* name_;
};

class SqliteDatabase {
 public:
  // `name` stands in messages; static storage.
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path,
                                                              const char* name);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  absl::Status Execute(const char* sql);
  // The names of the database's files are durable when this returns. Open calls it; whoever made the first tables does.
  absl::Status SyncNames();
  absl::StatusOr<SqliteStatement> Prepare(const char* sql);
  // Copies the write-ahead log into the database and truncates it; UNAVAILABLE when a reader held
  // it.
  absl::Status TruncateWal();
  // True: commits are synced. False (synchronous=NORMAL): they are in the hands of the operating system when Execute
  // returns, so they survive the process; the next synced commit makes them durable too, in order.
  absl::Status SetSyncedCommits(bool synced);

 private:
  SqliteDatabase(sqlite3* database, std::string path, const char* name)
      : database_(database), path_(std::move(path)), name_(name) {}
  absl::Status ApplySettings();
  sqlite3* database_;
  const std::string path_;
  const char* name_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_SQLITE_H_
