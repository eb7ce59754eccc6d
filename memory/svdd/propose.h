// Propose: a partition for all distinct keys, found on a working set that grows by what it got
// wrong.
//
// Equation:  PrimalSolver on W = S u E u {reserve keys whose gradient is below lambda}, with the
//            reserve keys nearest to it; then one pass over all keys; the reserve keys it finds
//            wrong join W (its own reserve keys leave) until none is left. If E has more than
//            kWholeError keys only those of it that are wrong or nearest to lambda are in W; the
//            others stay as they are, and count as a constant part of W's gradients and mass until
//            the pass finds one wrong. Then the sums of the pass change by the rows of what moved.
// Shapes:    start: one entry per group of gram; sums: [num_groups].
// Units:     a-units of one copy.
// Requires:  gram->num_keys() > mass; start is feasible, new keys in reserve with a = 0.
// Rejects:   returns false when it does not settle.
// Effects:   evaluates Gram rows of S u E and keeps them if they take at most keep_bytes; updates
//            factor; start is the result.
// Numerics:  f64, a proposal only. Memory beyond the rows O(|W|^2), |W| at most |S| + kWholeError +
//            4 kWrongAtOnce.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_PROPOSE_H_
#define LETHE_MEMORY_SVDD_PROPOSE_H_

#include <cstddef>
#include <vector>

#include "memory/svdd/cholesky.h"
#include "memory/svdd/gram_cache.h"
#include "memory/svdd/start.h"

namespace lethe::svdd {

// Error keys that a working set takes without choosing among them.
inline constexpr size_t kWholeError = 512;
inline constexpr size_t kWrongAtOnce = 1024;

// On success `start` holds the proposal (classes, a and lambda in f64).
// start_sums: sum_j w_j a_j K_ij of the start for all groups i where the caller has them, or null.
bool Propose(GramCache* gram, double mass, double ridge, CholeskyFactor* factor, Start* start,
             size_t keep_bytes = GramCache::kRowBytes,
             const std::vector<double>* start_sums = nullptr);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_PROPOSE_H_
