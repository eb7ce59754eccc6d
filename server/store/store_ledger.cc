// SessionStore: how far the erasure ledger is in force, stored with every change.
#include <algorithm>

#include "kernels/base/status_macros.h"
#include "server/store/session_store.h"

namespace lethe {

absl::StatusOr<LedgerPosition> SessionStore::ReadLedgerPosition() {
  MutexLock lock(&mutex_);
  LETHE_ASSIGN_OR_RETURN(audit::SqliteStatement statement,
                         database_->Prepare("SELECT position, head FROM ledger WHERE id = 1"));
  LETHE_ASSIGN_OR_RETURN(const bool found, statement.Step());
  if (!found) return LedgerPosition();
  const std::string head = statement.ColumnBlob(1);
  if (head.size() != ledger_position_.head.size()) {
    return absl::DataLossError("sessions.db: the ledger's position is damaged");
  }
  ledger_position_.offset = static_cast<uint64_t>(statement.ColumnInt64(0));
  std::copy(head.begin(), head.end(), ledger_position_.head.begin());
  return ledger_position_;
}

void SessionStore::UseLedger(const ErasureLedger* ledger) {
  MutexLock lock(&mutex_);
  ledger_ = ledger;
}

absl::Status SessionStore::StoreLedgerPosition() {
  MutexLock lock(&mutex_);
  return Transact(Durability::kSynced, [] { return absl::OkStatus(); });
}

absl::Status SessionStore::UpdateLedgerPosition() {
  if (ledger_ == nullptr) return absl::OkStatus();
  const LedgerPosition settled = ledger_->settled();
  if (settled == ledger_position_) return absl::OkStatus();
  LETHE_ASSIGN_OR_RETURN(
      audit::SqliteStatement statement,
      database_->Prepare("INSERT OR REPLACE INTO ledger(id, position, head) VALUES(1, ?, ?)"));
  LETHE_RETURN_IF_ERROR(statement.BindInt64(1, static_cast<int64_t>(settled.offset)));
  LETHE_RETURN_IF_ERROR(statement.BindBlob(2, audit::AsStringView(settled.head)));
  LETHE_RETURN_IF_ERROR(statement.Run());
  ledger_position_ = settled;
  return absl::OkStatus();
}

}  // namespace lethe
