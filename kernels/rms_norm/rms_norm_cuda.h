// RmsNormCuda: the CUDA form of RmsNormBatch; internal to kernels/rms_norm.
//
// Equation:  as in rms_norm.h.
// Shapes:    as in rms_norm_batch.h.
// Units:     none.
// Requires:  num_rows >= 1.
// Rejects:   INTERNAL when the launch fails.
// Effects:   as RmsNormBatch.
// Numerics:  as RmsNormBatch.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_RMS_NORM_RMS_NORM_CUDA_H_
#define LETHE_KERNELS_RMS_NORM_RMS_NORM_CUDA_H_

#include "kernels/rms_norm/rms_norm_batch.h"

namespace lethe::rms_norm {

absl::Status RmsNormCuda(Queue* queue, const float* x, int64_t num_rows, const float* gain,
                         int num_channels, float epsilon, float* y);

}  // namespace lethe::rms_norm

#endif  // LETHE_KERNELS_RMS_NORM_RMS_NORM_CUDA_H_
