#include "server/store/store_schema.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/crypto/secret.h"
#include "audit/crypto/sha256.h"
#include "kernels/base/status_macros.h"

namespace lethe {
namespace {

// "LetS" in ASCII, and the version of the tables below.
constexpr int64_t kApplicationId = 0x4c657453;
constexpr int64_t kSchemaVersion = 2;
constexpr char kCreateTables[] = R"(
CREATE TABLE identity(id INTEGER PRIMARY KEY CHECK(id = 1), store_id BLOB NOT NULL,
  commits INTEGER NOT NULL);
CREATE TABLE rows(row_id INTEGER PRIMARY KEY, session INTEGER NOT NULL, kind INTEGER NOT NULL,
  slot INTEGER NOT NULL, generation INTEGER NOT NULL, first_id INTEGER NOT NULL,
  end_id INTEGER NOT NULL, num_inputs INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE heads(session INTEGER PRIMARY KEY, num_rows INTEGER NOT NULL, row_sum INTEGER NOT NULL,
  checksum BLOB NOT NULL, slot INTEGER NOT NULL, generation INTEGER NOT NULL, name BLOB NOT NULL);
CREATE TABLE intents(session INTEGER PRIMARY KEY, leaf_hash BLOB NOT NULL, staged BLOB NOT NULL,
  doomed BLOB NOT NULL, checksum BLOB NOT NULL);
CREATE TABLE ledger(id INTEGER PRIMARY KEY CHECK(id = 1), position INTEGER NOT NULL,
  head BLOB NOT NULL);
PRAGMA application_id = 1281717331;
PRAGMA user_version = 2;
)";
static_assert(kApplicationId == 1281717331);

absl::StatusOr<int64_t> QueryInt64(audit::SqliteDatabase* database, const char* sql) {
  LETHE_ASSIGN_OR_RETURN(audit::SqliteStatement statement, database->Prepare(sql));
  LETHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
  return row ? statement.ColumnInt64(0) : 0;
}

absl::Status CreateTables(audit::SqliteDatabase* database) {
  StoreId id{};
  audit::RandomBytes(absl::MakeSpan(id));
  LETHE_RETURN_IF_ERROR(database->Execute("BEGIN IMMEDIATE"));
  LETHE_RETURN_IF_ERROR(database->Execute(kCreateTables));
  {
    LETHE_ASSIGN_OR_RETURN(audit::SqliteStatement statement,
                           database->Prepare("INSERT INTO identity(id, store_id, commits) "
                                             "VALUES(1, ?, 0)"));
    LETHE_RETURN_IF_ERROR(statement.BindBlob(1, audit::AsStringView(id)));
    LETHE_RETURN_IF_ERROR(statement.Run());
  }
  LETHE_RETURN_IF_ERROR(database->Execute("COMMIT"));
  return database->SyncNames();
}

absl::Status ReadIdentity(OpenedDatabase* opened) {
  LETHE_ASSIGN_OR_RETURN(
      audit::SqliteStatement statement,
      opened->database->Prepare("SELECT store_id, commits FROM identity WHERE id = 1"));
  LETHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
  const std::string bytes = row ? statement.ColumnBlob(0) : "";
  if (bytes.size() != opened->id.size()) {
    return absl::DataLossError("sessions.db: has no identity");
  }
  std::copy(bytes.begin(), bytes.end(), opened->id.begin());
  opened->num_commits = static_cast<uint64_t>(statement.ColumnInt64(1));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OpenedDatabase> OpenStoreDatabase(const std::string& path, bool has_keys) {
  OpenedDatabase opened;
  LETHE_ASSIGN_OR_RETURN(opened.database, audit::SqliteDatabase::Open(path, "sessions.db"));
  audit::SqliteDatabase* const database = opened.database.get();
  LETHE_ASSIGN_OR_RETURN(const int64_t num_tables,
                         QueryInt64(database, "SELECT count(*) FROM sqlite_master"));
  if (num_tables == 0) {
    if (has_keys) {
      return absl::FailedPreconditionError(
          "sessions.db is missing or empty, and data.keys beside it is not: restore the one or "
          "move the other away");
    }
    LETHE_RETURN_IF_ERROR(CreateTables(database));
  }
  LETHE_ASSIGN_OR_RETURN(const int64_t application_id,
                         QueryInt64(database, "PRAGMA application_id"));
  LETHE_ASSIGN_OR_RETURN(const int64_t version, QueryInt64(database, "PRAGMA user_version"));
  if (application_id != kApplicationId || version != kSchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("sessions.db: want schema version ", kSchemaVersion));
  }
  if (!has_keys) {
    LETHE_ASSIGN_OR_RETURN(const int64_t num_rows,
                           QueryInt64(database, "SELECT count(*) FROM rows"));
    if (num_rows > 0) return absl::DataLossError("data.keys is missing beside sessions.db");
  }
  LETHE_RETURN_IF_ERROR(ReadIdentity(&opened));
  return opened;
}

}  // namespace lethe
