// The host's forms of elementwise.h that are more than a loop; internal to kernels/elementwise.
//
// Equation:  as in elementwise.h.
// Shapes:    as in elementwise.h.
// Units:     none.
// Requires:  what elementwise.h requires.
// Rejects:   none.
// Effects:   write y.
// Numerics:  kernels/math's functions and sums.
// Threads:   safe.
#ifndef LETHE_KERNELS_ELEMENTWISE_ELEMENTWISE_CPU_H_
#define LETHE_KERNELS_ELEMENTWISE_ELEMENTWISE_CPU_H_

#include "kernels/elementwise/elementwise.h"

namespace lethe::elementwise {

void ApplyCpu(Function function, const float* x, int64_t size, float* y);
void SwigluCpu(const float* gate, const float* up, int64_t size, float* y);
void L2NormalizeRowsCpu(const float* x, const Matrix& shape, float divisor, float* y);

}  // namespace lethe::elementwise

#endif  // LETHE_KERNELS_ELEMENTWISE_ELEMENTWISE_CPU_H_
