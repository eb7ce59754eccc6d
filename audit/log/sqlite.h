// SqliteDatabase, SqliteStatement: the little of SQLite that the audit log's store needs.
//
// Equation:  none.
// Shapes:    bind parameters count from 1, columns from 0, as in SQLite.
// Units:     none.
// Requires:  Column functions after a Step that returned true, with the column's type.
// Rejects:   DATA_LOSS: SQLite finds the file damaged or no database; UNAVAILABLE: every other
//            error. Messages hold SQLite's error name, never stored content.
// Effects:   Open sets WAL, synchronous=FULL, secure_delete=ON, exclusive locking.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_AUDIT_LOG_SQLITE_H_
#define LETHE_AUDIT_LOG_SQLITE_H_

#include <cstdint>
#include <memory>
#include <string>

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
  // Steps to the end of a statement that returns no rows.
  absl::Status Run();
  int64_t ColumnInt64(int column) const;
  std::string ColumnBlob(int column) const;

 private:
  friend class SqliteDatabase;
  explicit SqliteStatement(sqlite3_stmt* statement) : statement_(statement) {}
  sqlite3_stmt* statement_;
};

class SqliteDatabase {
 public:
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  absl::Status Execute(const char* sql);
  absl::StatusOr<SqliteStatement> Prepare(const char* sql);
  // Copies the write-ahead log into the database and truncates it; UNAVAILABLE when a reader held
  // it.
  absl::Status TruncateWal();

 private:
  explicit SqliteDatabase(sqlite3* database) : database_(database) {}
  sqlite3* database_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_SQLITE_H_
