// KernelSums: sum_j T_j K_ij for every group i, kept while totals T_j change, in fixed point.
//
// Equation:  sums_i = sum_j term(T_j, K_ij), term(T, K) = T K rounded to a multiple of 2^-b, b =
//            min(scale, 50 - exponent of T). Integers add without error, so a term that is taken
//            away leaves nothing: the sums are a function of the totals and keys alone, whatever
//            order they came and went in. (Sums of doubles would keep the rounding of keys long
//            forgotten.)
// Shapes:    row: [size()] values K_ij of one j; column: K_ij of one i, one per total.
// Units:     T in a-units of all copies, 0 <= T; K in [0, 1].
// Requires:  totals of which the present ones sum to at most 2 M (a change under way); Change's
//            `before` is what the last Change of that row gave as `after`, 0 at first.
// Rejects:   none.
// Effects:   none beyond the sums.
// Numerics:  |Value(i) - sum_j T_j K_ij| <= Error(totals). About 1 ns an entry.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_KERNEL_SUMS_H_
#define LETHE_MEMORY_SVDD_KERNEL_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "kernels/base/wiped.h"

namespace lethe::svdd {

class KernelSums {
 public:
  explicit KernelSums(double box_mass);

  void Clear() { WipeFrom(&sums_, 0); }
  // Sums without a term up to this size.
  void Resize(size_t size) { sums_.resize(size); }
  size_t size() const { return sums_.size(); }

  // Of the row's entries from `begin` on.
  void Change(absl::Span<const double> row, double before, double after, size_t begin = 0);
  // One more group.
  void Append(absl::Span<const double> column, absl::Span<const double> totals);
  void SetZero(size_t i) { sums_[i] = 0; }
  // sums()[k] = before()[from[k]].
  void Reorder(absl::Span<const int64_t> from);

  // In units of 2^-scale.
  absl::Span<const int64_t> sums() const { return sums_; }
  double Value(size_t i) const { return static_cast<double>(sums_[i]) * unit_; }
  double Error(absl::Span<const double> totals) const;

 private:
  // b of a total.
  int Bits(double total) const;

  int scale_;
  double unit_;  // 2^-scale
  std::vector<int64_t> sums_;
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_KERNEL_SUMS_H_
