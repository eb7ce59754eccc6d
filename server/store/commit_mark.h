// CommitMark: how many changes of the session store were answered, beside the database, so that one that lost some is not
// taken for whole.
//
// SQLite takes a write-ahead log that was cut, or whose frames are damaged, for one that ends there: a database that is
// consistent and too old. Nothing inside it can tell.
//
// Equation:  the database counts its transactions; the mark holds the count after the last one that was synced. A mark
//            ahead of the database means that a durable transaction is gone.
// Shapes:    docs/data-directory.md.
// Units:     transactions since the store was made.
// Requires:  one object per file. Note: transaction `count` is durable.
// Rejects:   Open: UNAVAILABLE for input/output errors. Check: DATA_LOSS as above.
// Effects:   Note writes in place and syncs nothing: after a loss of power the mark may be too old, or unreadable, and then
//            says less; it never says too much. A file that is unreadable, or of another store, counts as none.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_SERVER_STORE_COMMIT_MARK_H_
#define LETHE_SERVER_STORE_COMMIT_MARK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/store/data_keys.h"

namespace lethe {

class CommitMark {
 public:
  static absl::StatusOr<std::unique_ptr<CommitMark>> Open(const std::string& path,
                                                          const StoreId& store);
  ~CommitMark();
  CommitMark(const CommitMark&) = delete;
  CommitMark& operator=(const CommitMark&) = delete;

  // `count`: what the database says.
  absl::Status Check(uint64_t count) const;
  void Note(uint64_t count);

 private:
  CommitMark(int descriptor, const StoreId& store) : descriptor_(descriptor), store_(store) {}
  const int descriptor_;
  const StoreId store_;
  uint64_t marked_ = 0;
};

}  // namespace lethe

#endif  // LETHE_SERVER_STORE_COMMIT_MARK_H_
