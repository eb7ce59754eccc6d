// GramRow, ScaledDistances: the one routine that evaluates the Gaussian kernel function between keys,
// and what it takes the exponential of.
//
// Equation:  GramRow: out_i = exp(-t_i); ScaledDistances: out_i = t_i = |x - y_i|^2 / sigma^2
//            (SV-Attention, papers' kappa: sigma^2, not 2 sigma^2).
// Shapes:    x: [dim]; keys: [count][dim] row-major; out: [count]. f64, or f32 keys widened to f64
//            without change of value.
// Units:     none.
// Requires:  dim >= 1; spans of these sizes (LETHE_CHECK); sigma 2^-20..2^20.
// Rejects:   none; a key that is not finite gives an unspecified value.
// Effects:   writes out; aliasing of x with a row of keys is allowed.
// Numerics:  difference form, never negative distances. Symmetric bit for bit: K(x, y) = K(y, x),
//            and K(x, x) = 1 exactly. The squared distance runs in 8 lanes (lane = component mod
//            8), each one fma chain, joined by the tree of kernels/math; a missing component is an
//            exact no-op; so an entry depends on x, y_i and sigma alone, not on its place in a
//            call. |out_i - kappa_i| <= GramErrorBound(dim) for the exact kappa of the stored bits,
//            for |components| <= 2^400; underflow gives 0 and is covered. GramRow's bits are Exp(-t)
//            of kernels/math at ScaledDistances' t. About 10 ns an entry at
//            dim = 64 on one core.
// Threads:   safe.
#ifndef LETHE_KERNELS_GRAM_GRAM_H_
#define LETHE_KERNELS_GRAM_GRAM_H_

#include <cstdint>

#include "absl/types/span.h"

namespace lethe {

void GramRow(absl::Span<const double> x, absl::Span<const double> keys, double sigma,
             absl::Span<double> out);
void GramRow(absl::Span<const float> x, absl::Span<const float> keys, double sigma,
             absl::Span<double> out);

void ScaledDistances(absl::Span<const double> x, absl::Span<const double> keys, double sigma,
                     absl::Span<double> out);

// The bound u_kappa above.
double GramErrorBound(int64_t dim);

}  // namespace lethe

#endif  // LETHE_KERNELS_GRAM_GRAM_H_
