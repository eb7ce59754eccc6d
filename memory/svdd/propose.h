// Propose: a partition for all distinct keys, found on a working set that grows by what it got
// wrong.
//
// Equation:  PrimalSolver on W = S u E u {reserve keys whose gradient is below lambda}; then one
//            pass over all keys; the reserve keys it finds wrong join W (its own reserve keys
//            leave) until none is left.
// Shapes:    classes: one per group of gram.
// Units:     a-units of one copy.
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
#include "memory/svdd/key_groups.h"
#include "memory/svdd/problem.h"

namespace lethe::svdd {

struct Start {
  std::vector<Partition> classes;
  std::vector<double> a;  // of one copy; feasible: 0 on R, 1 on E, sum w a = m
  double lambda = 0.0;    // of a; set by Propose
};

// The start that depends on nothing but the multiplicities: the mass goes to the first keys.
Start ColdStart(absl::Span<const double> weights, double mass);

// The canonical solution of the first ranks as a start for all of them: old keys keep what their
// copies held, w_old a_old = w a, new ones have 0. The mass must not have changed.
Start Carry(const KeyGroups& groups, const Solution& solution);

// The canonical solution of another list as a start: a rank begins with the class and a of its heir_of
// (copies share). New keys that are reserve keys whatever their own a begin with 0. The mass that is
// missing goes to the margin set up to half its room, then to the reserve keys with the smallest
// gradients. The mass must not have changed and be below the number of keys.
Start CarryEdited(GramCache* gram, const Solution& solution, const KeyEdit& edit, double ridge);

// The groups of the margin and error sets, ascending.
std::vector<int64_t> SupportGroups(const KeyGroups& groups, const Solution& solution);

// Members of S within 2^-40 of a bound go to R or E: where a tie is structural (M an integer, whole keys
// alone) they have reached it but for rounding, and Accept would refuse the proposal.
void LeaveBounds(Start* start);

// On success `start` holds the proposal (classes, a and lambda in f64).
bool Propose(GramCache* gram, double mass, double ridge, CholeskyFactor* factor, Start* start);

// sums[i] = sum_j factors[j] K(indices[j], i) for all groups i, blocks of 8 indices at a time in the
// order given: |error| <= (indices.size()/8 + 10) 2^-53 sum |factors| K.
void WeightedRowSum(GramCache* gram, absl::Span<const int64_t> indices,
                    absl::Span<const double> factors, std::vector<double>* sums);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_PROPOSE_H_
