// SolveRef, ReadRef: the support-vector solution and the hybrid read by the plainest means.
//
// Equation:  problem.h and docs/model-format.md (sv), the Gram doubles read as exact numbers.
// Shapes:    keys [n][dim]; ReadRef: q [K], keys [t][K], values [t][V], gate [s] for the first s
//            keys.
// Units:     a-units.
// Requires:  sizes that match; n >= 1.
// Rejects:   none.
// Effects:   none.
// Numerics:  SolveRef: primal active set, Gaussian elimination in long double at every step, most
//            violating member enters; ridge = 0 is allowed for keys that differ (reproduction of
//            the paper). ReadRef: double, libm's exponential. Both are oracles for tests, O(n^4) at
//            worst.
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_SVDD_REF_H_
#define LETHE_MEMORY_SVDD_SVDD_REF_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "memory/svdd/problem.h"

namespace lethe::svdd {

struct RefSolution {
  double mass = 0.0;
  std::vector<long double> a;
  long double lambda = 0.0L;
  long double rho = 0.0L;
  bool converged = false;
};

// Ranges of MakeParams do not apply; box_mass is used as given.
RefSolution SolveRef(const Params& params, absl::Span<const double> keys);

std::vector<double> ReadRef(double beta, absl::Span<const float> q, absl::Span<const float> keys,
                            absl::Span<const float> values, absl::Span<const double> gate);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_SVDD_REF_H_
