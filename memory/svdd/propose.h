// Propose: a partition for all keys, found on a working set that grows by what it got wrong.
//
// Equation:  PrimalSolver on W = S u E u {reserve keys whose gradient is below lambda}; then one
//            pass over all keys; the reserve keys it finds wrong join W (its own reserve keys
//            leave) until none is left.
// Shapes:    classes: [n].
// Units:     a-units.
// Requires:  gram->num_keys() > mass; start is feasible, new keys in reserve with a = 0.
// Rejects:   returns false when it does not settle.
// Effects:   evaluates Gram rows of S u E; updates factor; start is the result.
// Numerics:  f64, a proposal only.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_PROPOSE_H_
#define LETHE_MEMORY_SVDD_PROPOSE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "memory/svdd/cholesky.h"
#include "memory/svdd/gram_cache.h"
#include "memory/svdd/problem.h"

namespace lethe::svdd {

struct Start {
  std::vector<Partition> classes;
  std::vector<double> a;  // [n], feasible: 0 on R, 1 on E, sum m
  double lambda = 0.0;    // of a; set by Propose
};

// The start that depends on nothing but the number of keys: the mass goes to the first keys.
Start ColdStart(int64_t num_keys, double mass);

// On success `start` holds the proposal (classes, a and lambda in f64).
bool Propose(GramCache* gram, double mass, double ridge, CholeskyFactor* factor, Start* start);

// sums[i] = sum_j weights[j] K(indices[j], i) for all i, blocks of 8 indices at a time in the order
// given: |error| <= (indices.size()/8 + 10) 2^-53 sum |weights| K.
void WeightedRowSum(GramCache* gram, absl::Span<const int64_t> indices,
                    absl::Span<const double> weights, std::vector<double>* sums);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_PROPOSE_H_
