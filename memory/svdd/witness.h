// RefineWitness: the witness of a reported partition (proof.h), found by the server.
//
// Equation:  the linear system of enclosure.h, solved by iterative refinement: residuals with the
//            exact kernel in double-double, corrections by a Cholesky factor in doubles.
// Shapes:    as ProveOptimality; the witness has one a per distinct margin key, by first rank.
// Units:     a-units.
// Requires:  what ProveOptimality accepts (LETHE_DCHECK on the sizes).
// Rejects:   none: no witness for n <= M, without a margin set, where copies of a key are in two
//            classes, with more than kWitnessKeysMax distinct margin keys, or where the refinement
//            leaves 0 < a < 1 or does not converge.
// Effects:   none.
// Numerics:  a function of its arguments alone. Nothing is proved here: ProveOptimality measures the
//            witness. Cost O(s (s + e) d) per pass, three as a rule, and s^3/3 for the factor, s and e
//            distinct keys of S and E; memory 8 s^2 bytes.
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_WITNESS_H_
#define LETHE_MEMORY_SVDD_WITNESS_H_

#include <cstddef>
#include <optional>

#include "absl/types/span.h"

#include "memory/svdd/problem.h"
#include "memory/svdd/proof.h"

namespace lethe::svdd {

inline constexpr size_t kWitnessKeysMax = 8192;  // a factor of 512 MiB

std::optional<Witness> RefineWitness(const Params& params, absl::Span<const double> keys,
                                     const ReportedSolution& reported);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_WITNESS_H_
