// RmsNormBatch: RmsNorm on the queue's device.
//
// Equation:  as in rms_norm.h.
// Shapes:    x, y: [num_rows][num_channels] f32, gain: [num_channels]; num_rows may be 0 (no-op).
// Units:     none.
// Requires:  num_channels >= 1 (LETHE_CHECK); y may be x itself.
// Rejects:   INTERNAL when the launch fails.
// Effects:   enqueues the work that writes y.
// Numerics:  the bits of RmsNorm on both devices.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_RMS_NORM_RMS_NORM_BATCH_H_
#define LETHE_KERNELS_RMS_NORM_RMS_NORM_BATCH_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/queue.h"

namespace lethe {

absl::Status RmsNormBatch(Queue* queue, const float* x, int64_t num_rows, const float* gain,
                          int64_t num_channels, float epsilon, float* y);

}  // namespace lethe

#endif  // LETHE_KERNELS_RMS_NORM_RMS_NORM_BATCH_H_
