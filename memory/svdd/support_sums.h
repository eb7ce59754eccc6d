// SupportSums: the kernel sums of a reported solution that its proof needs, over distinct keys.
//
// Equation:  for totals over the copies of each key, T of the feasible a^, A of the reported a, and X
//            of the witness (1 on E; without a witness X = T):
//              reference_i = sum_j K_ij X_j, feasible_i = reference_i + sum_j K_ij (T - X)_j,
//              moved_i = sum_j K_ij (A - X)_j over the margin set.
// Shapes:    one sum per distinct key.
// Units:     a-units.
// Requires:  feasible, a: one per row of `keys`; a witness has one a per member of keys.margin(), and
//            all copies of a key are in one class then.
// Rejects:   none.
// Effects:   none.
// Numerics:  reference in double-double; T - X and A - X are small, so their sums are taken in plain
//            doubles. The errors are bounds that hold for every sum. Cost O(D s d), D distinct keys, s
//            of them with a total.
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_SUPPORT_SUMS_H_
#define LETHE_MEMORY_SVDD_SUPPORT_SUMS_H_

#include <vector>

#include "absl/types/span.h"

#include "memory/svdd/distinct_keys.h"
#include "memory/svdd/double_double.h"
#include "memory/svdd/proof.h"

namespace lethe::svdd {

struct SupportSums {
  std::vector<DoubleDouble> reference;
  std::vector<DoubleDouble> feasible;
  double reference_error = 0.0;
  double feasible_error = 0.0;
  // With a witness: bounds on |sum_S (A - X)_j kappa(q, x_j)| for every q, and on sum |a - a^|.
  double moved_bound = 0.0;
};

SupportSums SumOverSupport(const Params& params, const DistinctKeys& keys,
                           absl::Span<const DoubleDouble> feasible, absl::Span<const double> a,
                           const Witness* witness);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_SUPPORT_SUMS_H_
