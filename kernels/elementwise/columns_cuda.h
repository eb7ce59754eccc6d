// The CUDA forms of columns.h; internal to kernels/elementwise.
//
// Equation:  as in columns.h.
// Shapes:    as in columns.h, sizes >= 1.
// Units:     none.
// Requires:  what columns.h requires.
// Rejects:   INTERNAL when a launch fails.
// Effects:   enqueue the work.
// Numerics:  as in columns.h.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_ELEMENTWISE_COLUMNS_CUDA_H_
#define LETHE_KERNELS_ELEMENTWISE_COLUMNS_CUDA_H_

#include "kernels/elementwise/columns.h"

namespace lethe::elementwise {

absl::Status SplitColumnsCuda(Queue* queue, const float* x, const Matrix& shape,
                              const SplitPart* parts, int64_t num_parts, int64_t widest,
                              uint8_t* is_bad);
absl::Status JoinColumnsCuda(Queue* queue, const JoinPart* parts, int64_t num_parts, int64_t widest,
                             const Matrix& shape, float* y);
absl::Status SwigluColumnsCuda(Queue* queue, const float* x, const Matrix& shape, float* y);
absl::Status ScaleHeadsCuda(Queue* queue, const float* gate, const float* gain, Map map,
                            const float* x, const Matrix& shape, int64_t num_heads, float* y);
absl::Status NormalizeHeadsCuda(Queue* queue, const HeadsPart* parts, int64_t num_parts,
                                int64_t widest, int64_t num_rows);
absl::Status GatherRowsCuda(Queue* queue, const float* table, const int32_t* rows,
                            const Matrix& shape, float* y);

}  // namespace lethe::elementwise

#endif  // LETHE_KERNELS_ELEMENTWISE_COLUMNS_CUDA_H_
