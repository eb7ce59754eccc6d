// AddNormBatch, SkipNormBatch: RmsNorm of a sum, and the sum, in one pass on the queue's device.
//
// Equation:  AddNormBatch: x += y; normed = rms_norm(x, gain). SkipNormBatch: y[m][h][c] = skip[h] * x[m][h][c] +
//            y[m][h][c], rounded once; then, unless gate is null, y *= gate; then y = rms_norm(y, gain) over runs of
//            num_channels columns.
// Shapes:    AddNormBatch: x, y, normed: [num_rows][num_channels]. SkipNormBatch: x, y, gate:
//            [num_rows][num_heads * head_columns], skip: [num_heads]. gain: [num_channels]. f32; num_rows may be 0
//            (no-op).
// Units:     none.
// Requires:  sizes >= 1, num_channels <= 12288, num_heads * head_columns a multiple of num_channels (LETHE_CHECK); arrays
//            do not overlap.
// Rejects:   INTERNAL when the launch fails.
// Effects:   enqueue the work.
// Numerics:  the bits of Add or of AddSkip and Multiply (elementwise.h), then RmsNorm, on both devices.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_RMS_NORM_RESIDUAL_NORM_H_
#define LETHE_KERNELS_RMS_NORM_RESIDUAL_NORM_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/queue.h"

namespace lethe {

absl::Status AddNormBatch(Queue* queue, const float* y, int64_t num_rows, const float* gain,
                          int64_t num_channels, float epsilon, float* x, float* normed);

struct SkipShape {
  int64_t num_rows = 0;
  int64_t num_heads = 1;
  int64_t head_columns = 1;
  int64_t num_channels = 1;  // of a norm
  int64_t size() const { return num_rows * num_heads * head_columns; }
};

absl::Status SkipNormBatch(Queue* queue, const SkipShape& shape, const float* skip, const float* x,
                           const float* gate, const float* gain, float epsilon, float* y);

}  // namespace lethe

#endif  // LETHE_KERNELS_RMS_NORM_RESIDUAL_NORM_H_
