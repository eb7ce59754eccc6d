// WideExp: the exponential to double-double accuracy, for the proof.
//
// Equation:  WideExp(x) = e^x.
// Shapes:    none.
// Units:     none.
// Requires:  x <= 0.
// Rejects:   none.
// Effects:   none.
// Numerics:  relative error <= 2^-100 where the result is above 2^-900 (why: wide_lanes.h; tested
//            against 256-bit arithmetic), absolute error below 2^-900 beneath. The bits of
//            WideColumns (wide_columns.h).
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_WIDE_EXP_H_
#define LETHE_MEMORY_SVDD_WIDE_EXP_H_

#include "memory/svdd/double_double.h"

namespace lethe::svdd {

DoubleDouble WideExp(const DoubleDouble& x);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_WIDE_EXP_H_
