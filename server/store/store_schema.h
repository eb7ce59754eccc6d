// OpenStoreDatabase: opens or creates sessions.db, its schema and the store's identity.
//
// Equation:  none.
// Shapes:    docs/data-directory.md.
// Units:     none.
// Requires:  none.
// Rejects:   FAILED_PRECONDITION: another schema, or a new database beside keys of an old one; DATA_LOSS: a
//            database without the keys that its rows were sealed under, or a damaged one.
// Effects:   a new database is durable, with a random identity, when it is returned.
// Numerics:  none.
// Threads:   none.
#ifndef LETHE_SERVER_STORE_STORE_SCHEMA_H_
#define LETHE_SERVER_STORE_STORE_SCHEMA_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "audit/log/sqlite.h"
#include "server/store/data_keys.h"

namespace lethe {

struct OpenedDatabase {
  std::unique_ptr<audit::SqliteDatabase> database;
  StoreId id{};
  uint64_t num_commits = 0;
};

absl::StatusOr<OpenedDatabase> OpenStoreDatabase(const std::string& path, bool has_keys);

}  // namespace lethe

#endif  // LETHE_SERVER_STORE_STORE_SCHEMA_H_
