// GramCache: the keys of one head, equal ones merged, and the rows of their Gram matrix that the
// solver has asked for.
//
// Equation:  Row(i)_j = K(y_i, y_j) of kernels/gram over the distinct keys y, i and j groups of
//            KeyGroups.
// Shapes:    keys [n][dim] f64 row-major, in rank order.
// Units:     none.
// Requires:  as KeyGroups; groups below num_groups() (LETHE_DCHECK).
// Rejects:   none.
// Effects:   Row evaluates what is missing. A row's pointer is valid until Append, Truncate, Erase
//            or KeepOnly. Truncate and Erase overwrite what they drop, buffers kept for reuse
//            included; KeepOnly overwrites the rows that it frees.
// Numerics:  the bits of an entry never depend on whether it was cached. Memory: the keys; rows in
//            use, O(rows num_groups); between solves at most kRowBytes of rows (KeepOnly) and
//            kBufferBytes of buffers.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_GRAM_CACHE_H_
#define LETHE_MEMORY_SVDD_GRAM_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "memory/svdd/key_groups.h"

namespace lethe::svdd {

class GramCache {
 public:
  static constexpr size_t kRowBytes = size_t{256} << 20;
  static constexpr size_t kBufferBytes = size_t{64} << 20;

  GramCache(double sigma, int64_t dim) : sigma_(sigma), groups_(dim) {}

  void Append(absl::Span<const double> keys);
  // The keys of another head, without its rows; this one has none yet.
  void CopyKeys(const GramCache& other);
  void Truncate(int64_t num_keys);
  // Removes one key; later ones move down.
  void Erase(int64_t rank);
  // Drops every row that is not in `indices` (ascending groups), and of these the last ones beyond
  // max_bytes.
  void KeepOnly(absl::Span<const int64_t> indices, size_t max_bytes = kRowBytes);

  const KeyGroups& groups() const { return groups_; }
  int64_t num_keys() const { return groups_.num_keys(); }
  int64_t num_groups() const { return groups_.num_groups(); }
  absl::Span<const double> weights() const { return groups_.weights(); }
  absl::Span<const double> Row(int64_t index);

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
  std::vector<double> TakeBuffer(size_t size);
  void GiveBuffer(std::vector<double> buffer);

  // Kernel values evaluated since construction.
  int64_t num_evaluations() const { return num_evaluations_; }
  size_t state_bytes() const;

 private:
  void WipeBuffers();
  // Entries of row `index` that are already there.
  int64_t CachedLength(int64_t index) const {
    return static_cast<int64_t>(rows_[static_cast<size_t>(index)].size());
  }

  double sigma_;
  KeyGroups groups_;
  std::vector<std::vector<double>> rows_;        // [num_groups], empty where not cached
  std::vector<std::vector<double>> spare_rows_;  // of KeepOnly, for reuse
  std::vector<double> buffer_;
  int64_t num_evaluations_ = 0;
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_GRAM_CACHE_H_
