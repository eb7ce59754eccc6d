// SessionStore: the intents of changes that go with a record of the audit log.
#include <algorithm>
#include <cstring>

#include "kernels/base/byte_io.h"
#include "kernels/base/status_macros.h"
#include "server/store/session_store.h"

namespace lethe {
namespace {

std::string PackIds(absl::Span<const int64_t> row_ids) {
  ByteWriter writer;
  writer.Array(row_ids);
  return writer.Take();
}

absl::Status UnpackIds(const std::string& bytes, std::vector<int64_t>* row_ids) {
  ByteReader reader(bytes);
  LETHE_RETURN_IF_ERROR(reader.Array(row_ids));
  return reader.remaining() == 0 ? absl::OkStatus() : absl::DataLossError("bytes are left");
}

std::string ChecksumOf(int64_t session, absl::string_view leaf_hash, absl::string_view staged,
                       absl::string_view doomed) {
  ByteWriter writer;
  writer.String("lethe-intent-v1");
  writer.I64(session);
  writer.String(leaf_hash);
  writer.String(staged);
  writer.String(doomed);
  return std::string(audit::AsStringView(audit::Sha256Of(writer.bytes())));
}

}  // namespace

absl::Status SessionStore::InsertIntent(const Intent& intent) {
  LETHE_ASSIGN_OR_RETURN(
      audit::SqliteStatement statement,
      database_->Prepare(
          "INSERT OR REPLACE INTO intents(session, leaf_hash, staged, doomed, checksum) "
          "VALUES(?, ?, ?, ?, ?)"));
  const absl::string_view leaf_hash = audit::AsStringView(intent.leaf_hash);
  const std::string staged = PackIds(intent.staged);
  const std::string doomed = PackIds(intent.doomed);
  LETHE_RETURN_IF_ERROR(statement.BindInt64(1, intent.session));
  LETHE_RETURN_IF_ERROR(statement.BindBlob(2, leaf_hash));
  LETHE_RETURN_IF_ERROR(statement.BindBlob(3, staged));
  LETHE_RETURN_IF_ERROR(statement.BindBlob(4, doomed));
  LETHE_RETURN_IF_ERROR(
      statement.BindBlob(5, ChecksumOf(intent.session, leaf_hash, staged, doomed)));
  return statement.Run();
}

absl::StatusOr<std::vector<SessionStore::Intent>> SessionStore::LoadIntents(int64_t* num_damaged) {
  LETHE_ASSIGN_OR_RETURN(
      audit::SqliteStatement statement,
      database_->Prepare("SELECT session, leaf_hash, staged, doomed, checksum FROM intents"));
  std::vector<Intent> intents;
  while (true) {
    LETHE_ASSIGN_OR_RETURN(const bool row, statement.Step());
    if (!row) return intents;
    Intent intent;
    intent.session = statement.ColumnInt64(0);
    const std::string leaf_hash = statement.ColumnBlob(1);
    const std::string staged = statement.ColumnBlob(2);
    const std::string doomed = statement.ColumnBlob(3);
    // Without it nobody knows which of its session's rows are in force, and the session does not add up: two snapshots,
    // or a record that the log does not hold.
    if (statement.ColumnBlob(4) != ChecksumOf(intent.session, leaf_hash, staged, doomed) ||
        leaf_hash.size() != intent.leaf_hash.size() || !UnpackIds(staged, &intent.staged).ok() ||
        !UnpackIds(doomed, &intent.doomed).ok()) {
      ++*num_damaged;
      continue;
    }
    std::copy(leaf_hash.begin(), leaf_hash.end(), intent.leaf_hash.begin());
    intents.push_back(std::move(intent));
  }
}

}  // namespace lethe
