// Fallback: the optimum to far below the margin threshold, from a cold start, in double-double.
//
// Equation:  the f64 active set from ColdStart gives a start; then a primal active set whose steps,
//            ratio tests, gradients and stopping rule are double-double: solve on S with E fixed
//            (PartitionSystem), step to the first bound (ties: lowest rank), else let the most
//            violating member of R or E enter (ties: lowest rank), until the duality gap
//              G = sum w_i (a_i max(g_i, 0) + (1 - a_i) max(-g_i, 0))  <  ridge' t^2/2,
//            that is the gap of the problem with all copies written out; it proves sqrt(sum w_i (a_i
//            - a*_i)^2) < t/2, so |a_i - a*_i| < t/2 for every copy. Classes read off: R if a <=
//            t/2, E if a >= 1 - t/2, else S.
// Shapes:    a, classes: one per group of gram.
// Units:     a-units of one copy.
// Requires:  gram->num_keys() > mass, ridge_lower > 0.
// Rejects:   none; `certified` is false when the gap was not reached.
// Effects:   evaluates Gram rows. NumFallbacks counts the calls of this process, for its metrics; nothing depends on it.
// Numerics:  a function of (keys, parameters) alone: no warm start, no maintained number enters.
// Threads:   compatible; NumFallbacks safe.
#ifndef LETHE_MEMORY_SVDD_FALLBACK_H_
#define LETHE_MEMORY_SVDD_FALLBACK_H_

#include <cstdint>
#include <vector>

#include "memory/svdd/double_double.h"
#include "memory/svdd/gram_cache.h"
#include "memory/svdd/problem.h"

namespace lethe::svdd {

struct FallbackResult {
  std::vector<DoubleDouble> a;
  DoubleDouble lambda;
  std::vector<Partition> classes;
  bool certified = false;
  int64_t num_steps = 0;
};

FallbackResult Fallback(GramCache* gram, double mass, double ridge, double ridge_lower,
                        double threshold);

int64_t NumFallbacks();

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_FALLBACK_H_
