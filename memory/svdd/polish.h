// PartitionSystem: the linear system of a partition, solved to more than double precision and
// rounded.
//
// Equation:  for margin set S (not empty) and error set E, sets of distinct keys with
//            multiplicities w:  2 sum_S K_ij w_j a_j + 2 ridge a_i + 2 sum_E K_ie w_e = lambda on S,
//            sum_S w a = m - |E|; a is of one copy, |E| = sum_E w. Refined with double-double
//            residuals r0 (sum row), r1 until the radius
//              |r0|/sqrt(s) + (|r1| + 2s(1+ridge)|r0|/sqrt(s))/(2 ridge'),  ridge' = ridge - n
//                u_kappa,  s = sum_S w,  |x| = sqrt(sum_S w x^2),
//            which bounds |a - a_exact|, so every entry's error too (w >= 1), is far below half an
//            ulp; then a and rho = 1 - lambda/m are rounded to nearest on the grid below. Where the
//            radius leaves a rounding open, 256 fraction bits decide.
//            Why the radius: written out for all copies the system has n, s, |E| as counted here
//            and the same solution on every copy (its matrix A = 2(K + ridge I)_SS >= 2 ridge' I
//            has one solution, which permuting copies leaves alone); a copied residual has the norm
//            above. Let d = a - a_exact. 1'd = -r0: the part of d along 1 is |r0|/sqrt(s), the rest
//            e has 1'e = 0, so e'A e = -e'(r1 + A(d - e)) <= |e| (|r1| + 2s(1+ridge)|r0|/sqrt(s)),
//            where |A| <= 2s(1+ridge); and e'A e >= 2 ridge' |e|^2. lambda: the mean of the rows.
// Shapes:    margin, error: groups, ascending; a(): one per member of margin.
// Units:     a-units.
// Requires:  factor (cholesky.h) over exactly the margin set with the weights of gram, in any
//            order; 0 < ridge' <= ridge.
// Rejects:   Refine, RoundTo return false when the refinement does not converge.
// Effects:   evaluates Gram rows of S; borrows the cache's buffer, so gram outlives it.
// Numerics:  what RoundTo returns is a function of the keys, parameters and classes alone: not of
//            the factor or its order. Grid: doubles, and multiples of 2^-60 below 2^-8. Cost per
//            step O(s (s + e)) in distinct keys.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_POLISH_H_
#define LETHE_MEMORY_SVDD_POLISH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "kernels/base/wiped.h"
#include "memory/svdd/cholesky.h"
#include "memory/svdd/double_double.h"
#include "memory/svdd/gram_cache.h"
#include "memory/svdd/problem.h"
#include "memory/svdd/wide_fixed.h"

namespace lethe::svdd {

class PartitionSystem {
 public:
  PartitionSystem(GramCache* gram, double mass, double ridge, double ridge_lower,
                  std::vector<int64_t> margin, std::vector<int64_t> error);

  ~PartitionSystem();
  PartitionSystem(const PartitionSystem&) = delete;
  PartitionSystem& operator=(const PartitionSystem&) = delete;

  bool Refine(const CholeskyFactor& factor);

  const std::vector<int64_t>& margin() const { return margin_; }
  const std::vector<int64_t>& error() const { return error_; }
  // After Refine.
  const std::vector<DoubleDouble>& a() const { return a_; }
  const DoubleDouble& lambda() const { return lambda_; }
  double num_copies() const { return copies_; }            // s
  double radius() const { return radius_; }                // of a(), in the norm above
  double lambda_radius() const { return lambda_radius_; }  // of lambda()
  // Bounds on |r1|_2 and |r0| of a() and lambda().
  double residual_norm() const { return residual_norm_; }
  double sum_residual() const { return sum_residual_; }

  // Rounds a and rho. `used_more_digits` says whether the wide arithmetic was needed; with
  // force_more_digits it decides every rounding (for tests: the result is the same).
  bool RoundTo(std::vector<double>* a, double* rho, bool* used_more_digits,
               bool force_more_digits = false);

 private:
  struct Wide;

  void FillColumns();
  // r1; returns r0.
  double Residual(std::vector<double>* residual) const;
  // sqrt(sum_S w x^2).
  double Norm(const std::vector<double>& x) const;
  struct Radius {
    double a;
    double lambda;
  };
  // The enclosure for given bounds on |r0| and |r1|_2.
  Radius RadiusOf(double sum_residual, double residual_norm) const;
  // da, dlambda for the residuals, through the factor.
  void Correction(double sum_residual, const std::vector<double>& residual,
                  std::vector<double>* delta, double* delta_lambda) const;
  double RowErrorBound() const;
  bool RefineWide(Wide* wide) const;
  double WideResidual(const Wide& wide, std::vector<double>* residual) const;
  bool Permute(const CholeskyFactor& factor);

  GramCache* cache_;
  double mass_;
  double ridge_;
  double ridge_lower_;
  std::vector<int64_t> margin_;
  std::vector<int64_t> error_;
  std::vector<double> weights_;           // of margin_
  double copies_ = 0.0;                   // s, their sum
  double error_copies_ = 0.0;             // |E|
  size_t stride_;                         // margin_.size() rounded up to whole vectors
  WipedVector<double> gram_;              // columns of S, then of E, stride_ apart; rows S
  std::vector<DoubleDouble> error_part_;  // sum_E K_ie w_e
  std::vector<DoubleDouble> a_;
  DoubleDouble lambda_;
  double radius_ = 0.0;
  double lambda_radius_ = 0.0;
  double residual_norm_ = 0.0;
  double sum_residual_ = 0.0;
  const CholeskyFactor* factor_ = nullptr;  // during and after Refine
  std::vector<size_t> place_;               // of the factor's positions in margin_
  std::vector<double> inverse_ones_;        // A^-1 1, in the order of margin_
  double inverse_sum_ = 0.0;                // 1'A^-1 1
};

// Makes `factor` that over `margin` (ascending), keeping what it can. weights: [num_groups].
void SyncFactor(GramCache* gram, absl::Span<const double> weights,
                const std::vector<int64_t>& margin, CholeskyFactor* factor);

// The nearest grid value to x, ties to even.
double RoundToGrid(const DoubleDouble& x);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_POLISH_H_
