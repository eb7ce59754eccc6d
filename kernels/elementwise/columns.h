// SplitColumns, JoinColumns, SwigluColumns, ScaleHeads, NormalizeHeads, GatherRows: columns of wide matrices to the arrays
// of single heads and back, with the maps on the way, on the queue's device.
//
// Equation:  SplitColumns: part.y[m][c] = f(x'[m][begin + c] + add[c]) * scale[c], x' = x, or with is_bad
//            0 for a number that is NaN or infinite, and is_bad[m] = 1 then (else left).
//            JoinColumns: y[m][begin + c] = part.x[m][c] * factor[m][c] * gain[c mod gain_columns].
//            SwigluColumns: y[m][c] = silu(x[m][c]) * x[m][C + c]. ScaleHeads: y[m][h][c] = (gate[m][h] *
//            gain[h]) * f(x[m][h][c]). GatherRows: y[m] = table[rows[m]].
//            NormalizeHeads: in every part x[m][h] = x[m][h] / sqrt(sum x[m][h]^2 + 1e-12).
//            What is null is left out: no sum, no product.
// Shapes:    x of SplitColumns, y of JoinColumns: [num_rows][num_columns], a part's array [num_rows][its
//            num_columns], factor too; add, scale: [its num_columns]. SwigluColumns: x [num_rows][2 C].
//            A HeadsPart: [num_rows][num_columns], heads of head_columns. f32 row-major; any sizes >= 1, num_rows 0 is a no-op.
// Units:     none.
// Requires:  parts on the queue's device, within the matrix; `widest` no less than a part's num_columns;
//            num_parts <= 65535, fewer than 2^31 elements (LETHE_CHECK of what the host sees); outputs
//            overlap neither inputs nor each other, except y of ScaleHeads, which may be x.
// Rejects:   INTERNAL when a launch fails.
// Effects:   enqueue the work.
// Numerics:  as elementwise.h: one IEEE operation each, functions of kernels/math; the same bits on both
//            devices. Cost: a read and a write of the arrays.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_ELEMENTWISE_COLUMNS_H_
#define LETHE_KERNELS_ELEMENTWISE_COLUMNS_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/queue.h"
#include "kernels/elementwise/elementwise.h"

namespace lethe::elementwise {

enum class Map : int32_t { kNone, kSigmoid, kSilu, kSoftplus, kEluPlusOne };

struct SplitPart {
  int64_t begin = 0;
  int64_t num_columns = 0;
  Map map = Map::kNone;
  const float* add = nullptr;
  const float* scale = nullptr;
  float* y = nullptr;
};

struct JoinPart {
  int64_t begin = 0;
  int64_t num_columns = 0;
  const float* x = nullptr;
  const float* factor = nullptr;
  const float* gain = nullptr;
  int64_t gain_columns = 1;
};

struct HeadsPart {
  float* x = nullptr;
  int64_t num_columns = 0;
  int64_t head_columns = 1;
};

absl::Status SplitColumns(Queue* queue, const float* x, const Matrix& shape, const SplitPart* parts,
                          int64_t num_parts, int64_t widest, uint8_t* is_bad);
absl::Status JoinColumns(Queue* queue, const JoinPart* parts, int64_t num_parts, int64_t widest,
                         const Matrix& shape, float* y);
// shape: of y.
absl::Status SwigluColumns(Queue* queue, const float* x, const Matrix& shape, float* y);
// shape: of x; f is Sigmoid or nothing.
absl::Status ScaleHeads(Queue* queue, const float* gate, const float* gain, Map map, const float* x,
                        const Matrix& shape, int64_t num_heads, float* y);
absl::Status NormalizeHeads(Queue* queue, const HeadsPart* parts, int64_t num_parts, int64_t widest,
                            int64_t num_rows);
// shape: of y.
absl::Status GatherRows(Queue* queue, const float* table, const int32_t* rows, const Matrix& shape,
                        float* y);

}  // namespace lethe::elementwise

#endif  // LETHE_KERNELS_ELEMENTWISE_COLUMNS_H_
