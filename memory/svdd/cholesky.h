// CholeskyFactor: the maintained factor of 2(K + ridge I) over the margin set.
//
// Equation:  L L' = A, A_ij = 2 K(id_i, id_j) + 2 (ridge/w_i) [i = j], w_i the multiplicity of key
//            i: the matrix of the totals A_i = w_i a_i (numerics: append = one triangular solve,
//            remove = delete the row and restore by a rank-one update; both backward stable,
//            O(s^2)).
// Shapes:    L lower triangular, column-major with stride capacity; ids: [s] in factor order.
// Units:     none.
// Requires:  column spans of s entries; positions below size() (LETHE_DCHECK).
// Rejects:   none: a pivot below ridge/w_i (rounding on nearly equal keys; in exact arithmetic it is
//            at least twice that) is raised to it, which the refinement of polish.h corrects.
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

#include "kernels/base/wiped.h"

namespace lethe::svdd {

class CholeskyFactor {
 public:
  explicit CholeskyFactor(double ridge) : ridge_(ridge) {}

  void Clear();
  // Room for `size` members.
  void Reserve(size_t size);
  // column_i = A(id, ids()[i]).
  void Append(int64_t id, absl::Span<const double> column, double weight);
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
  // The multiplicities that the members were appended with.
  const std::vector<double>& weights() const { return weights_; }
  size_t state_bytes() const {
    return (values_.capacity() + weights_.capacity() + ids_.capacity()) * sizeof(double);
  }

 private:
  double* Column(size_t j) { return values_.data() + j * stride_; }
  const double* Column(size_t j) const { return values_.data() + j * stride_; }

  double ridge_;
  size_t stride_ = 0;
  WipedVector<double> values_;
  std::vector<int64_t> ids_;
  std::vector<double> weights_;
};

// y += scale * x and sum x_i y_i, vectorised; the order of the sum is not part of any contract.
void Axpy(double scale, const double* x, size_t count, double* y);
double FastDot(const double* x, const double* y, size_t count);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_CHOLESKY_H_
