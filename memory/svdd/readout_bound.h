// AddReadoutBound, ReadoutFactorAt: from bounds on the weights to bounds on what a read returns.
//
// Equation:  o_c(q) = sum_i w_i(q) v_ic / sum_i w_i(q), over retained keys with gate a_i times a
//            positive function of q (RBF: kappa(q, x_i); hybrid: e^{q.k_i/sqrt(d)}) and, hybrid only,
//            local inputs with gate 1. Partition proved: for every q
//              |o_c - o*_c| <= (max v_c - min v_c) max_S r_i/a_i,
//            max and min over the support and the local inputs; why: o - o* = sum (a_i - a*_i) w_i
//            (v_i - o*)/D and |a_i - a*_i| <= (max r/a) a_i. Not proved, for one q:
//              |o_c - o*_c| <= (max v_c - min v_c) m |alpha - alpha*|_2 |w(q)|_2 / D(q),
//            max and min over all retained and local values: o* may use any.
// Shapes:    gated [n][dim], local [l][dim] row-major; classes, a, weights: [n].
// Units:     a-units; bounds in units of the values.
// Requires:  finite values; sizes that match (LETHE_DCHECK); weights >= 0.
// Rejects:   none.
// Effects:   AddReadoutBound sets bounds->readout_bound.
// Numerics:  rounded up. The bounds are on the real-valued readout of the stored a, not on the
//            rounding of an f32 evaluation. ReadoutFactorAt: weights and local_sum within
//            weight_error of the true ones, relatively.
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_READOUT_BOUND_H_
#define LETHE_MEMORY_SVDD_READOUT_BOUND_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "memory/svdd/proof.h"

namespace lethe::svdd {

// T: float or double.
template <typename T>
struct ReadoutValues {
  absl::Span<const T> gated;
  absl::Span<const T> local;  // empty for an RBF readout
  int64_t dim = 0;
};

enum class ValueSet { kSupport, kRetained };

// Per coordinate, max v_c - min v_c over the local values and those of the set; 0 where there are
// none.
template <typename T>
std::vector<double> ValueRanges(absl::Span<const Partition> classes, const ReadoutValues<T>& values,
                                ValueSet set);

// The bound for every q and the coordinate of the largest range; +infinity when the partition is not
// proved.
template <typename T>
void AddReadoutBound(absl::Span<const Partition> classes, const ReadoutValues<T>& values,
                     OptimalityBounds* bounds);

// What one query weighs: w_i(q) of every retained key, without its gate, and the sum over the local
// inputs. Any common positive factor is allowed: an RBF readout subtracts the smallest squared
// distance in the support first, so that D does not underflow.
struct QueryWeights {
  absl::Span<const double> gated;
  double local_sum = 0.0;
  double weight_error = 0.0;
};

// m |alpha - alpha*|_2 |w|_2 / D, to be multiplied by a range of kRetained; +infinity where D is 0.
double ReadoutFactorAt(const OptimalityBounds& bounds, absl::Span<const double> a, double mass,
                       const QueryWeights& weights);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_READOUT_BOUND_H_
