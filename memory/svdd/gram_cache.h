// GramCache: the keys of one head and the rows of their Gram matrix that the solver has asked for.
//
// Equation:  Row(i)_j = K(x_i, x_j) of kernels/gram, j = 0..num_keys()-1.
// Shapes:    keys [n][dim] f64 row-major.
// Units:     none.
// Requires:  indices below num_keys() (LETHE_DCHECK).
// Rejects:   none.
// Effects:   Row evaluates what is missing. A row's pointer is valid until Append, Truncate, Erase
//            or KeepOnly. Truncate and Erase overwrite what they drop, buffers kept for reuse
//            included.
// Numerics:  the bits of an entry never depend on whether it was cached.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_GRAM_CACHE_H_
#define LETHE_MEMORY_SVDD_GRAM_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lethe::svdd {

class GramCache {
 public:
  GramCache(double sigma, int64_t dim) : sigma_(sigma), dim_(dim) {}

  void Append(absl::Span<const double> keys);
  void Truncate(int64_t num_keys);
  // Removes one key; later ones move down.
  void Erase(int64_t index);
  // Drops every row that is not in `indices` (ascending).
  void KeepOnly(absl::Span<const int64_t> indices);

  int64_t num_keys() const { return num_keys_; }
  absl::Span<const double> keys() const { return keys_; }
  absl::Span<const double> Key(int64_t index) const;
  absl::Span<const double> Row(int64_t index);

  // out[c * rows.size() + r] = K(rows[r], columns[c]); uses cached rows, adds none.
  void Block(absl::Span<const int64_t> rows, absl::Span<const int64_t> columns,
             absl::Span<double> out) const {
    Block(rows, columns, rows.size(), out.data());
  }
  // The same with columns `stride` apart in out.
  void Block(absl::Span<const int64_t> rows, absl::Span<const int64_t> columns, size_t stride,
             double* out) const;

  // A buffer of at least `size` doubles of any content, to be given back for the next user: large
  // short-lived allocations cost page faults.
  std::vector<double> TakeBuffer(size_t size);
  void GiveBuffer(std::vector<double> buffer);

  size_t state_bytes() const;

 private:
  void WipeBuffers();
  // Entries of row `index` that are already there.
  int64_t CachedLength(int64_t index) const {
    return static_cast<int64_t>(rows_[static_cast<size_t>(index)].size());
  }

  double sigma_;
  int64_t dim_;
  int64_t num_keys_ = 0;
  std::vector<double> keys_;
  std::vector<std::vector<double>> rows_;        // [n], empty where not cached
  std::vector<std::vector<double>> spare_rows_;  // of KeepOnly, for reuse
  std::vector<double> buffer_;
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_GRAM_CACHE_H_
