// The CUDA forms of elementwise.h; internal to kernels/elementwise.
//
// Equation:  as in elementwise.h.
// Shapes:    as in elementwise.h, sizes >= 1.
// Units:     none.
// Requires:  what elementwise.h requires.
// Rejects:   INTERNAL when a launch fails.
// Effects:   enqueue the work.
// Numerics:  as in elementwise.h.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_ELEMENTWISE_ELEMENTWISE_CUDA_H_
#define LETHE_KERNELS_ELEMENTWISE_ELEMENTWISE_CUDA_H_

#include "kernels/elementwise/elementwise.h"

namespace lethe::elementwise {

absl::Status ApplyCuda(Queue* queue, Function function, const float* x, int64_t size, float* y);

// y = op(x, operand).
enum class Binary { kSwiglu, kAdd, kMultiply };
absl::Status BinaryCuda(Queue* queue, Binary op, const float* x, const float* operand, int64_t size,
                        float* y);

// y = op(x, operand of the element's row, column or head).
enum class Broadcast { kAddRow, kScaleColumns, kScaleRows };
absl::Status BroadcastCuda(Queue* queue, Broadcast op, const float* x, const float* operand,
                           const Matrix& shape, float* y);

absl::Status AddSkipCuda(Queue* queue, const float* skip, const float* x, const Matrix& shape,
                         int64_t head_columns, float* y);
absl::Status L2NormalizeRowsCuda(Queue* queue, const float* x, const Matrix& shape, float divisor,
                                 float* y);
absl::Status MarkNonFiniteCuda(Queue* queue, const float* x, const Matrix& shape, uint8_t* is_bad);

}  // namespace lethe::elementwise

#endif  // LETHE_KERNELS_ELEMENTWISE_ELEMENTWISE_CUDA_H_
