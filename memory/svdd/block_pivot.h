// BlockPivot: a proposal for the partition of a problem given by its dense Gram matrix, from any start.
//
// Equation:  principal pivoting in blocks (Judice and Pires 1994) on the KKT system of problem.h: solve for
//            (lambda, a_S) with a = 1 on E and 0 on R; members of S outside the box go to R or E, members
//            of R and E with the wrong gradient sign go to S, all at once; when the number of wrong ones
//            has not fallen for kPatience rounds, one at a time (lowest rank) until it does.
// Shapes:    gram [w][w] f64; ids ascending (ranks), classes, a: [w].
// Units:     a-units.
// Requires:  spans of these sizes; mass <= w; factor->ids() a subset of ids or arbitrary (foreign ids leave
//            the factor).
// Rejects:   returns false when it does not settle in kMaxRounds.
// Effects:   classes is start and result; factor ends as the factor of the result's margin set.
// Numerics:  f64, a proposal only: canon.h decides. Gradient signs within kTolerance (relative to lambda)
//            count as right.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_BLOCK_PIVOT_H_
#define LETHE_MEMORY_SVDD_BLOCK_PIVOT_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "memory/svdd/cholesky.h"
#include "memory/svdd/problem.h"

namespace lethe::svdd {

class BlockPivot {
 public:
  static constexpr double kTolerance = 1e-11;

  BlockPivot(absl::Span<const int64_t> ids, absl::Span<const double> gram, double mass,
             double ridge, CholeskyFactor* factor);

  bool Run(std::vector<Partition>* classes);

  const std::vector<double>& a() const { return a_; }
  double lambda() const { return lambda_; }
  int64_t num_changes() const { return num_changes_; }

 private:
  static constexpr int kPatience = 4;
  static constexpr int kMaxRounds = 400;

  const double* Column(size_t j) const { return gram_.data() + j * ids_.size(); }
  void SyncFactor();
  void RebuildFactor();
  void AppendToFactor(size_t local);
  // Solves the system of the present classes; fills a_, lambda_ and gradient_.
  void SolveSystem();
  // The members whose class the present solution contradicts, ascending.
  void FindWrong(std::vector<size_t>* wrong) const;
  // One member of R or E, or both, when the margin set is empty; false when the classes are optimal.
  bool WrongWithEmptyMargin(std::vector<size_t>* wrong);
  void Move(size_t local);

  absl::Span<const int64_t> ids_;
  absl::Span<const double> gram_;
  double mass_;
  double ridge_;
  CholeskyFactor* factor_;
  std::vector<Partition> classes_;
  std::vector<size_t> local_;     // of the factor's positions
  std::vector<double> a_;         // [w]
  std::vector<double> gradient_;  // [w], 2((K + ridge I) a)_i
  double lambda_ = 0.0;
  int64_t num_changes_ = 0;
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_BLOCK_PIVOT_H_
