// Start: a feasible point that a proposal begins with, and the ways to one.
//
// Equation:  a in [0, 1], sum w a = m over distinct keys with multiplicities w.
// Shapes:    classes, a: one per group.
// Units:     a-units of one copy.
// Requires:  as each function says.
// Rejects:   none.
// Effects:   CarryEdited evaluates Gram rows.
// Numerics:  f64, for proposals only.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_START_H_
#define LETHE_MEMORY_SVDD_START_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

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
// (copies share). New keys that are reserve keys whatever their own a begin with 0; then Refill. The mass
// must not have changed and be below the number of keys.
Start CarryEdited(GramCache* gram, const Solution& solution, const KeyEdit& edit, double ridge);

// Gives the mass that the start lacks: to the margin set up to half its room, then to the reserve keys with
// the smallest sums, then to the margin set. sums: sum_j w_j a_j K_ij for all groups i, asked for when
// they are needed. Groups of weight 0 get nothing.
void Refill(double mass, absl::Span<const double> weights,
            absl::FunctionRef<std::vector<double>()> sums, Start* start);

struct Support {
  std::vector<int64_t> indices;
  std::vector<double> totals;  // w a
};
Support SupportOf(const Start& start, absl::Span<const double> weights);

// The middle one, which a few far-off ones do not move; 0 without any.
double Median(std::vector<double> values);

// The groups of the margin and error sets, ascending.
std::vector<int64_t> SupportGroups(const KeyGroups& groups, const Solution& solution);

// Members of S within 2^-40 of a bound go to R or E: where a tie is structural (M an integer, whole keys
// alone) they have reached it but for rounding, and Accept would refuse the proposal.
void LeaveBounds(Start* start);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_START_H_
