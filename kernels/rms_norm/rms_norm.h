// RmsNorm: scales each row to unit root mean square, then by a gain per channel.
//
// Equation:  y_i = x_i / sqrt(mean_j x_j^2 + epsilon) * gain_i (docs/model-format.md 2).
// Shapes:    x, y: [num_rows][D] f32, D = gain.size() >= 1; num_rows = x.size() / D, may be 0
//            (no-op).
// Units:     none.
// Requires:  x.size() a multiple of D, y.size() = x.size() (LETHE_CHECK); y may be x itself.
// Rejects:   none.
// Effects:   writes y.
// Numerics:  the squares are summed in the 8 lanes of kernels/math's Dot, divided by D, rounded;
//            then one root, one division and one product per element. A row's bits do not depend on
//            other rows. Overflow of the sum (|x| > about 1e19) gives 0, NaN gives NaN.
// Threads:   safe.
#ifndef LETHE_KERNELS_RMS_NORM_RMS_NORM_H_
#define LETHE_KERNELS_RMS_NORM_RMS_NORM_H_

#include "absl/types/span.h"

namespace lethe {

void RmsNorm(absl::Span<const float> x, absl::Span<const float> gain, float epsilon,
             absl::Span<float> y);

// The oracle, in double.
void RmsNormRef(absl::Span<const float> x, absl::Span<const float> gain, double epsilon,
                absl::Span<double> y);

}  // namespace lethe

#endif  // LETHE_KERNELS_RMS_NORM_RMS_NORM_H_
