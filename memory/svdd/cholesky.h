// CholeskyFactor: the maintained factor of 2(K + ridge I) over the margin set.
//
// Equation:  L L' = A, A_ij = 2 K(id_i, id_j) + 2 ridge [i = j] (numerics: append = one triangular
//            solve, remove = delete the row and restore by a rank-one update; both backward stable,
//            O(s^2)).
// Shapes:    L lower triangular, column-major with stride capacity; ids: [s] in factor order.
// Units:     none.
// Requires:  column spans of s entries; positions below size() (LETHE_DCHECK).
// Rejects:   none: a pivot below `floor` (rounding on nearly equal keys) is raised to it, which the
//            refinement of polish.h corrects.
// Effects:   Append, Remove and Clear change the factor; ids are the caller's.
// Numerics:  f64; used as a preconditioner and inside proposals only, so its bits never reach a
//            solution.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_CHOLESKY_H_
#define LETHE_MEMORY_SVDD_CHOLESKY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lethe::svdd {

class CholeskyFactor {
 public:
  // floor: a lower bound on the pivots in exact arithmetic, for example the ridge.
  explicit CholeskyFactor(double floor) : floor_(floor) {}

  void Clear();
  // column_i = A(id, ids()[i]); diagonal = A(id, id).
  void Append(int64_t id, absl::Span<const double> column, double diagonal);
  void Remove(size_t position);

  // x <- L^-1 x, x <- L^-T x.
  void SolveLower(absl::Span<double> x) const;
  void SolveUpper(absl::Span<double> x) const;
  // SolveLower of two at once: the factor is read from memory once.
  void SolveLower(absl::Span<double> x, absl::Span<double> y) const;
  void Solve(absl::Span<double> x) const {
    SolveLower(x);
    SolveUpper(x);
  }

  size_t size() const { return ids_.size(); }
  const std::vector<int64_t>& ids() const { return ids_; }
  void SetId(size_t position, int64_t id) { ids_[position] = id; }
  size_t state_bytes() const { return (values_.capacity() + ids_.capacity()) * sizeof(double); }

 private:
  double* Column(size_t j) { return values_.data() + j * stride_; }
  const double* Column(size_t j) const { return values_.data() + j * stride_; }
  void Reserve(size_t size);

  double floor_;
  size_t stride_ = 0;
  std::vector<double> values_;
  std::vector<int64_t> ids_;
};

// y += scale * x and sum x_i y_i, vectorised; the order of the sum is not part of any contract.
void Axpy(double scale, const double* x, size_t count, double* y);
double FastDot(const double* x, const double* y, size_t count);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_CHOLESKY_H_
