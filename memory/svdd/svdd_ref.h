// SolveRef, ReadRef: the support-vector solution and the hybrid read by the plainest means.
//
// Equation:  problem.h and docs/model-format.md (sv), the Gram doubles read as exact numbers.
// Shapes:    keys [n][dim]; ReadRef: q [K], keys [t][K], values [t][V], gate [s] for the first s
//            keys; a gate whose sum is not 0 with prefix_mass.
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

// prefix_mass: the gated weights are scaled up to the sum that they have without gates, so that a long
// prefix keeps its share of the softmax (a training option: reserve keys then count, and dropping them
// changes the read, so nothing about selection can be certified).
std::vector<double> ReadRef(double beta, absl::Span<const float> q, absl::Span<const float> keys,
                            absl::Span<const float> values, absl::Span<const double> gate,
                            bool prefix_mass = false);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_SVDD_REF_H_
