// Canon, Accept: from a proposed partition to the one canonical solution.
//
// Equation:  Accept(X, P, t): Polish(X, P) with a proof that every margin is at least t: a, 1 - a
//            on S, m|g| on R and E (S empty: |E| = m, copies counted, and half the gap of the
//            gradients between E and R).
//            Canon(X): (1) if Accept(X, P, 2t), that; (2) else P~ = Fallback(X): if Accept(X, P~,
//            t), that; (3) else the fallback's a, rounded, marked ambiguous.
//            Why one result: if some path stops at (1), all margins are >= 2t and P is the
//            optimum's; on every other path P~ is the same partition, Accept(t) holds, and the same
//            Polish is returned. If no path stops at (1), all return (2) or (3), functions of X.
//            t = max(2^-30, 2 sqrt(2 m (m+n)(n+d) 2^-103 / ridge')),  ridge' = ridge - n u_kappa,
//            n all copies.
//            Merged keys: the theorem is about the problem with all copies written out. Its optimum
//            is unique (K + ridge I >= ridge' I) and permuting equal keys leaves the problem alone,
//            so equal keys have equal a* and one class: a partition of the distinct keys says all,
//            and every margin is that of one copy. m, n, |E| and the norms of polish.h and
//            fallback.h count copies; K-sums run over distinct keys with w a for a.
// Shapes:    proposal, classes: one per group of gram; Solution: one per rank.
// Units:     a-units of one copy.
// Requires:  gram->num_keys() > mass; ridge' > 0.
// Rejects:   none.
// Effects:   evaluates Gram rows, brings factor to the accepted margin set, counts.
// Numerics:  the Solution is a function of (keys, parameters) alone, whatever the proposal, the
//            factor and the cache hold. With Fault::kPolishSkipped it is the path's own a.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_CANON_H_
#define LETHE_MEMORY_SVDD_CANON_H_

#include <cstdint>

#include "absl/types/span.h"

#include "memory/svdd/canonical.h"
#include "memory/svdd/cholesky.h"
#include "memory/svdd/double_double.h"
#include "memory/svdd/gram_cache.h"
#include "memory/svdd/problem.h"
#include "memory/svdd/start.h"

namespace lethe::svdd {

// ridge' and t above.
double RidgeLower(const Params& params, int64_t num_keys);
double MarginThreshold(const Params& params, int64_t num_keys);

// sum_j totals_j K(support_j, i) for all groups i, and a bound on its error.
class RowSums {
 public:
  virtual ~RowSums() = default;
  virtual absl::Span<const double> Of(const std::vector<int64_t>& support,
                                      const std::vector<double>& totals, double* error) = 0;
};

// The bound on a gradient's error that CheckGradients allows for: of 2 (the sum), the rounding of a
// (half an ulp of 1 a copy of the margin set), of the totals, of rho and of lambda.
double GradientError(double sum_error, double mass, double margin_copies);

// False when the margins are not proved to be >= required; then *solution is unspecified. factor:
// any, with the ids of gram's groups. `threshold` is t; required is t or 2t. row_sums: by default a
// WeightedRowSum. Holes (key_groups.h) are passed over.
bool Accept(GramCache* gram, const Params& params, absl::Span<const Partition> classes,
            double threshold, double required, CholeskyFactor* factor, Solution* solution,
            Counters* counters, RowSums* row_sums = nullptr);

// proposal may be null: then the fallback decides at once.
Solution Canon(GramCache* gram, const Params& params, const Start* proposal, CholeskyFactor* factor,
               Counters* counters);

// The solution of num_keys <= M keys: a = 1, rho from the row sums sum_j K_ij (j all ranks) of the
// distinct keys.
Solution SaturatedSolution(const Params& params, int64_t num_keys,
                           absl::Span<const DoubleDouble> row_sums);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_CANON_H_
