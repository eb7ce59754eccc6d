// SampledStart: a start for a long list that nothing is known of, from the optimum of a part of it.
//
// Equation:  every kStride-th distinct key with its copies and the mass in proportion is solved
//            first (from a SampledStart of its own); the sums sum_j w_j a_j K_ij over its margin and
//            error sets rank all keys, and the mass goes to those with the smallest sums, the
//            outermost.
// Shapes:    as start.h.
// Units:     as start.h.
// Requires:  gram->num_keys() > mass; no holes.
// Rejects:   none.
// Effects:   evaluates O(num_groups |S u E| / kStride) kernel values, keeps no row.
// Numerics:  f64, for proposals only; a function of keys and parameters alone. Below kLeast distinct
//            keys ColdStart.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_SAMPLED_START_H_
#define LETHE_MEMORY_SVDD_SAMPLED_START_H_

#include "memory/svdd/gram_cache.h"
#include "memory/svdd/start.h"

namespace lethe::svdd {

Start SampledStart(GramCache* gram, double mass, double ridge);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_SAMPLED_START_H_
