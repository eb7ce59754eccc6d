// WideExp, WideKernel: the exponential and the Gaussian kernel function to double-double accuracy,
// for the proof.
//
// Equation:  WideExp(x) = e^x; WideKernel(a, b) = exp(-|a - b|^2 / sigma^2).
// Shapes:    a, b: [dim].
// Units:     none.
// Requires:  x <= 0; equal sizes; |components| <= 2^400, sigma 2^-20..2^20.
// Rejects:   none.
// Effects:   none.
// Numerics:  WideExp: relative error <= 2^-100 above 2^-900 (tested against 256-bit arithmetic),
//            absolute error below 2^-900 beneath. WideKernel: |error| <= WideKernelError(dim) =
//            (dim + 16) 2^-103: differences exact, t with relative error (dim + 4) 2^-103, t e^-t
//            <= 1/e.
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_WIDE_EXP_H_
#define LETHE_MEMORY_SVDD_WIDE_EXP_H_

#include <cstdint>

#include "absl/types/span.h"

#include "memory/svdd/double_double.h"

namespace lethe::svdd {

DoubleDouble WideExp(const DoubleDouble& x);
DoubleDouble WideKernel(absl::Span<const double> a, absl::Span<const double> b, double sigma);
double WideKernelError(int64_t dim);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_WIDE_EXP_H_
