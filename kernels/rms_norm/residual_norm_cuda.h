// The CUDA forms of residual_norm.h; internal to kernels/rms_norm.
//
// Equation:  as in residual_norm.h.
// Shapes:    as in residual_norm.h.
// Units:     none.
// Requires:  num_rows >= 1 and what residual_norm.h requires.
// Rejects:   INTERNAL when the launch fails.
// Effects:   enqueue the work.
// Numerics:  as in residual_norm.h.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_RMS_NORM_RESIDUAL_NORM_CUDA_H_
#define LETHE_KERNELS_RMS_NORM_RESIDUAL_NORM_CUDA_H_

#include "kernels/rms_norm/residual_norm.h"

namespace lethe::rms_norm {

absl::Status AddNormCuda(Queue* queue, const float* y, int64_t num_rows, const float* gain,
                         int num_channels, float epsilon, float* x, float* normed);
absl::Status SkipNormCuda(Queue* queue, const SkipShape& shape, const float* skip, const float* x,
                          const float* gate, const float* gain, float epsilon, float* y);

}  // namespace lethe::rms_norm

#endif  // LETHE_KERNELS_RMS_NORM_RESIDUAL_NORM_CUDA_H_
