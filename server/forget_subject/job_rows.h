// JobRows: the rows of one job in the session store, all under a key of its own.
//
// Equation:  none.
// Shapes:    rows of kind kJob under a session number of the store's (docs/data-directory.md).
// Units:     none.
// Requires:  Prepare and Finish or Undo in turn.
// Rejects:   what SessionStore rejects; on error what is stored is what it was.
// Effects:   without a store nothing is stored and everything says yes. Prepare: one row in place of all others, under a
//            new key, to go with a record of the audit log (session_store.h has the protocol); when Finish returns the
//            old rows cannot be opened any more. Remove: everything goes, and is erased.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_SERVER_FORGET_SUBJECT_JOB_ROWS_H_
#define LETHE_SERVER_FORGET_SUBJECT_JOB_ROWS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/store/session_store.h"

namespace lethe {

class JobRows {
 public:
  // Of a new job; a null store: of none.
  explicit JobRows(SessionStore* store) : store_(store) {}
  // As they are stored; not empty.
  JobRows(SessionStore* store, int64_t number, std::vector<StoredRow> rows);

  // In the order in which they were added.
  absl::StatusOr<std::vector<std::string>> ReadAll();
  absl::Status Add(std::string body, Durability durability);
  absl::Status Prepare(std::string body, const audit::Sha256Digest& leaf_hash);
  absl::Status Finish();
  // As RecordedChange::Undo (server/journal).
  absl::Status Undo(std::optional<bool> recorded);
  // As SessionStore::GiveUp, for a failure elsewhere.
  absl::Status GiveUp(const absl::Status& cause);
  absl::Status Remove();

  bool is_prepared() const { return prepared_; }

 private:
  StoreChange NewChange() const;

  SessionStore* store_;
  int64_t number_ = 0;
  DataKeyRef key_;
  std::vector<StoredRow> rows_;
  bool prepared_ = false;
  DataKeyRef next_key_;               // of what is prepared
  std::vector<StoredRow> next_rows_;  // likewise
};

}  // namespace lethe

#endif  // LETHE_SERVER_FORGET_SUBJECT_JOB_ROWS_H_
