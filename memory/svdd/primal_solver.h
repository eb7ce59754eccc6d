// PrimalSolver: a proposal for the partition of a problem given by its dense Gram matrix, from a
// feasible start.
//
// Equation:  primal active set on problem.h in the totals A_i = w_i a_i of distinct keys with
//            multiplicity w_i, that is box [0, w_i] and ridge/w_i: solve for (lambda, A_S) with A =
//            w on E and 0 on R;
//            step towards it to the first bound, where that member of S goes to R or E; once the
//            whole step fits, the worst members of R and E with the wrong gradient sign enter S, in
//            blocks that grow while they are digested in few steps and shrink to one while they are
//            not.
//            Keys outside that do not move add `fixed` to the gradients.
// Shapes:    gram [n][n] f64; ids (groups, ascending), weights, classes, a: [n]; fixed: [n] or empty
//            (zeros).
// Units:     a-units of one copy for a.
// Requires:  spans of these sizes; a feasible to rounding (sum w a = mass), 0 on R, 1 on E.
// Rejects:   Run returns false when it does not settle in 20 n + 200 steps.
// Effects:   classes and a are start and result; factor (any start; foreign ids leave it) ends as
//            that of the result's margin set.
// Numerics:  f64, a proposal only: canon.h decides. Gradient signs within kTolerance (relative to
//            lambda) count as right.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_PRIMAL_SOLVER_H_
#define LETHE_MEMORY_SVDD_PRIMAL_SOLVER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "memory/svdd/cholesky.h"
#include "memory/svdd/problem.h"

namespace lethe::svdd {

class PrimalSolver {
 public:
  static constexpr double kTolerance = 1e-11;

  PrimalSolver(absl::Span<const int64_t> ids, absl::Span<const double> weights,
               absl::Span<const double> gram, absl::Span<const double> fixed, double mass,
               double ridge, CholeskyFactor* factor);

  bool Run(std::vector<Partition>* classes, std::vector<double>* a);

  double lambda() const { return lambda_; }
  int64_t num_steps() const { return num_steps_; }

 private:
  static constexpr size_t kFirstBlock = 16;

  const double* Column(size_t j) const { return gram_.data() + j * ids_.size(); }
  // Brings the factor to the margin set of classes_.
  void SyncFactor();
  // Adds a key to E's part of the sums (sign 1) or takes it out (-1).
  void MoveError(size_t local, double sign);
  void EnterMargin(size_t local);
  void LeaveMargin(size_t position, Partition place);
  // The solution on S; totals_ move towards it. True when it got there.
  bool Step();
  // lambda for an empty margin set: the largest gradient in E.
  void EmptyMarginLambda();
  void UpdateGradient();
  // At most `limit` members of R and E with the wrong sign; with an empty margin set, one of E
  // besides.
  std::vector<size_t> WorstFirst(size_t limit) const;

  absl::Span<const int64_t> ids_;
  absl::Span<const double> weights_;
  absl::Span<const double> gram_;
  absl::Span<const double> fixed_;
  double mass_;
  double ridge_;
  CholeskyFactor* factor_;
  std::vector<Partition> classes_;
  std::vector<size_t> local_;       // of the factor's positions
  std::vector<double> totals_;      // [n]
  std::vector<double> error_part_;  // [n], 2 sum_E K w and `fixed`
  std::vector<double> gradient_;    // [n], of one copy, as of the last UpdateGradient
  double error_count_ = 0.0;
  double lambda_ = 0.0;
  int64_t num_steps_ = 0;
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_PRIMAL_SOLVER_H_
