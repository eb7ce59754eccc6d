// Apply, Swiglu, Add, Multiply, AddRow, ScaleColumns, ScaleRows, AddSkip, L2NormalizeRows, MarkNonFinite:
// the element-wise maps between a layer's products, on the queue's device.
//
// Equation:  Apply: y = f(x), f of kernels/math. Swiglu: y = silu(gate) * up. Add: x += y. Multiply:
//            x *= factor. AddRow: x[m][c] += row[c]. ScaleColumns: x[m][c] *= row[c]. ScaleRows:
//            y[m][c] = factor[m] * x[m][c]. AddSkip: y[m][h][c] = skip[h] * x[m][h][c] + y[m][h][c],
//            rounded once. L2NormalizeRows: y = x / sqrt(sum x^2 + 1e-12) / divisor by rows.
//            MarkNonFinite: is_bad[m] = 1 where a number of row m is NaN or infinite, else left.
// Shapes:    f32 [size], or [num_rows][num_columns] row-major; any size, 0 is a no-op.
// Units:     none.
// Requires:  num_columns >= 1, num_columns a multiple of num_heads (LETHE_CHECK). An output may be an
//            input of its size itself, other overlap is not allowed.
// Rejects:   INTERNAL when a launch fails.
// Effects:   enqueue the work.
// Numerics:  an element's bits depend on its own operands alone, those of a row of L2NormalizeRows on the
//            row; the same bits on both devices: each operation is one IEEE operation, functions and sums
//            are those of kernels/math. Cost: a read and a write of the arrays.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
#define LETHE_KERNELS_ELEMENTWISE_ELEMENTWISE_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/queue.h"

namespace lethe::elementwise {

enum class Function { kExp, kLog, kSigmoid, kSilu, kSoftplus, kElu, kEluPlusOne };

struct Matrix {
  int64_t num_rows = 0;
  int64_t num_columns = 1;
  int64_t size() const { return num_rows * num_columns; }
};

absl::Status Apply(Queue* queue, Function function, const float* x, int64_t size, float* y);
absl::Status Swiglu(Queue* queue, const float* gate, const float* up, int64_t size, float* y);
absl::Status Add(Queue* queue, const float* y, int64_t size, float* x);
absl::Status Multiply(Queue* queue, const float* factor, int64_t size, float* x);
absl::Status AddRow(Queue* queue, const float* row, const Matrix& shape, float* x);
absl::Status ScaleColumns(Queue* queue, const float* row, const Matrix& shape, float* x);
absl::Status ScaleRows(Queue* queue, const float* factor, const float* x, const Matrix& shape,
                       float* y);
absl::Status AddSkip(Queue* queue, const float* skip, const float* x, const Matrix& shape,
                     int64_t num_heads, float* y);
absl::Status L2NormalizeRows(Queue* queue, const float* x, const Matrix& shape, float divisor,
                             float* y);
absl::Status MarkNonFinite(Queue* queue, const float* x, const Matrix& shape, uint8_t* is_bad);

}  // namespace lethe::elementwise

#endif  // LETHE_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
