// GramCache: the keys of one head, equal ones merged, and the rows of their Gram matrix that the
// solver has asked for.
//
// Equation:  Row(i)_j = K(y_i, y_j) of kernels/gram over the distinct keys y, i and j groups of
//            KeyGroups.
// Shapes:    keys [n][dim] f64 row-major, in rank order.
// Units:     none.
// Requires:  as KeyGroups; groups below num_groups() (LETHE_DCHECK).
// Rejects:   none.
// Effects:   Row evaluates what is missing and keeps it. A row's pointer is valid until Append, Truncate, Erase
//            or KeepOnly. Truncate and Erase overwrite what they drop, Truncate and Compact buffers
//            kept for reuse as well; rows that KeepOnly frees keep their content until they are used again or
//            until WipeBuffers. A copy has the keys and the rows.
// Numerics:  the bits of an entry never depend on whether it was cached. Memory: the keys; rows in
//            use, O(rows num_groups); between solves at most kRowBytes of rows (KeepOnly), room for
//            growth and half as many again, and kBufferBytes of buffers.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_GRAM_CACHE_H_
#define LETHE_MEMORY_SVDD_GRAM_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "kernels/base/wiped.h"
#include "memory/svdd/key_groups.h"
#include "memory/svdd/row_store.h"

namespace lethe::svdd {

class GramCache {
 public:
  static constexpr size_t kRowBytes = size_t{256} << 20;
  static constexpr size_t kBufferBytes = size_t{64} << 20;
  // Rows that are read once are kept up to this: more of them cost more in fresh pages than in values.
  static constexpr size_t kPassBytes = size_t{16} << 20;

  GramCache(double sigma, int64_t dim) : sigma_(sigma), groups_(dim) {}
  GramCache(const GramCache& other);
  GramCache& operator=(const GramCache&) = delete;

  void Append(absl::Span<const double> keys);
  // The keys of another head, without its rows; this one has none yet.
  void CopyKeys(const GramCache& other);
  // The keys that `edit` makes of another head's, and its rows of the keys that stay: entries of new
  // keys are evaluated, the others copied. This one has no keys yet.
  void SetEdited(const GramCache& before, const KeyEdit& edit);
  void Truncate(int64_t num_keys);
  // KeyGroups::Erase. Overwrites what the rows hold of a key whose last copy goes; its column stays.
  bool Erase(int64_t rank);
  // Leaves out the holes of Erase and numbers groups by first rank again; returns each group's number
  // before. Rows stay.
  std::vector<int64_t> Compact();
  // Drops every row that is not in `indices` (ascending groups), and of these the last ones beyond
  // max_bytes.
  void KeepOnly(absl::Span<const int64_t> indices, size_t max_bytes = kRowBytes);
  // Overwrites and drops what is kept for reuse only.
  void WipeBuffers();
  // The same, kept: a dropped buffer costs its next user fresh pages.
  void OverwriteBuffers();

  double sigma() const { return sigma_; }
  const KeyGroups& groups() const { return groups_; }
  int64_t num_keys() const { return groups_.num_keys(); }
  int64_t num_groups() const { return groups_.num_groups(); }
  absl::Span<const double> weights() const { return groups_.weights(); }
  absl::Span<const double> Row(int64_t index);
  bool HasRow(int64_t index) const { return CachedLength(index) == num_groups(); }
  // Entries of a row from `begin` on, as many as `room` has: those of the kept row, or evaluated into
  // room and not kept. Valid as Row's and as room.
  const double* Part(int64_t index, int64_t begin, absl::Span<double> room);

  // out[c * rows.size() + r] = K(rows[r], columns[c]); uses cached rows, adds none.
  void Block(absl::Span<const int64_t> rows, absl::Span<const int64_t> columns,
             absl::Span<double> out) {
    Block(rows, columns, rows.size(), out.data());
  }
  // The same with columns `stride` apart in out.
  void Block(absl::Span<const int64_t> rows, absl::Span<const int64_t> columns, size_t stride,
             double* out);

  // A buffer of at least `size` doubles of any content, to be given back for the next user: large
  // short-lived allocations cost page faults.
  WipedVector<double> TakeBuffer(size_t size);
  void GiveBuffer(WipedVector<double> buffer);

  // Kernel values evaluated since construction.
  int64_t num_evaluations() const { return num_evaluations_; }
  size_t state_bytes() const;

 private:
  struct CachedRow {
    double* data = nullptr;  // of store_
    size_t length = 0;       // entries that are there; 0: not cached
    absl::Span<double> entries() const { return {data, length}; }
  };

  // Entries of row `index` that are already there.
  int64_t CachedLength(int64_t index) const {
    return static_cast<int64_t>(rows_[static_cast<size_t>(index)].length);
  }
  // Rows for the groups there are, in a store that is wide enough.
  void MakeRoom();
  // Moves the rows to a store of this stride, without free ones.
  void MoveRows(size_t stride);
  // The row is no longer there; its place is free, its content not overwritten.
  void Drop(CachedRow* row);
  // Drops and overwrites the entries from `length` on.
  void Shorten(size_t length, CachedRow* row);
  // The row of a group of the other cache by this one's numbers.
  // new_keys: of the groups without one before.
  void CarryRow(const double* before, const std::vector<int64_t>& group_before,
                absl::Span<const double> new_keys, int64_t index);

  double sigma_;
  KeyGroups groups_;
  RowStore store_;
  std::vector<CachedRow> rows_;  // [num_groups]
  WipedVector<double> buffer_;
  size_t buffer_used_ = 0;  // of buffer_ since it was last overwritten
  int64_t num_evaluations_ = 0;
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_GRAM_CACHE_H_
