// PartitionSystem: the linear system of a partition, solved to more than double precision and
// rounded.
//
// Equation:  for margin set S (not empty) and error set E:  2((K + ridge I) a)_i + 2 sum_E K_ie =
//            lambda on S, sum_S a = m - |E|. Refined with double-double residuals r0 (sum row), r1
//            until the radius
//              |r0|/sqrt(s) + (|r1| + 2s(1+ridge)|r0|/sqrt(s))/(2 ridge'),  ridge' = ridge - n
//                u_kappa,
//            which bounds |a - a_exact|_2, is far below half an ulp; then a and rho = 1 - lambda/m
//            are rounded to nearest on the grid below. Where the radius leaves a rounding open, 256
//            fraction bits decide.
// Shapes:    margin, error: ranks, ascending; a(): [s].
// Units:     a-units.
// Requires:  factor of 2(K + ridge I) over exactly the margin set, in any order; 0 < ridge' <=
//            ridge.
// Rejects:   Refine, RoundTo return false when the refinement does not converge.
// Effects:   evaluates Gram rows of S and E; borrows the cache's buffer, so gram outlives it.
// Numerics:  what RoundTo returns is a function of the keys, parameters and classes alone: not of
//            the factor or its order. Grid: doubles, and multiples of 2^-60 below 2^-8. Cost O(s (s
//            + e)) per step.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_POLISH_H_
#define LETHE_MEMORY_SVDD_POLISH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

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
  double radius() const { return radius_; }                // of a(), 2-norm
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

  // residual_i = lambda - 2((K + ridge I)a)_i - 2 sum_E K_ie; returns m - |E| - sum a.
  double Residual(std::vector<double>* residual) const;
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
  size_t stride_;                         // s rounded up to whole vectors
  std::vector<double> gram_;              // [s + e][stride_]: columns of S, then of E; rows S
  std::vector<DoubleDouble> error_part_;  // [s] sum_E K_ie
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

// Makes `factor` that of 2(K + ridge I) over `margin` (ascending), keeping what it can.
void SyncFactor(GramCache* gram, double ridge, const std::vector<int64_t>& margin,
                CholeskyFactor* factor);

// The nearest grid value to x, ties to even.
double RoundToGrid(const DoubleDouble& x);

// sum_j weights[j] K(i, indices[j]), one double-double chain in the order given.
DoubleDouble WideRowSum(absl::Span<const double> row, absl::Span<const int64_t> indices,
                        absl::Span<const DoubleDouble> weights);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_POLISH_H_
