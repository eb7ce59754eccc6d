#include "kernels/elementwise/elementwise.h"

#include <cmath>

#include "absl/types/span.h"

#include "kernels/base/check.h"
#include "kernels/base/on_cuda.h"
#include "kernels/elementwise/elementwise_cpu.h"
#include "kernels/elementwise/elementwise_cuda.h"

namespace lethe::elementwise {
namespace {

bool IsCuda(const Queue* queue) { return queue->kind() == DeviceKind::kCuda; }

void CheckShape(const Matrix& shape) { LETHE_CHECK(shape.num_rows >= 0 && shape.num_columns >= 1); }

}  // namespace

absl::Status Apply(Queue* queue, Function function, const float* x, int64_t size, float* y) {
  LETHE_CHECK(size >= 0);
  if (size == 0) return absl::OkStatus();
  if (IsCuda(queue)) return LETHE_ON_CUDA(ApplyCuda(queue, function, x, size, y));
  ApplyCpu(function, x, size, y);
  return absl::OkStatus();
}

absl::Status Swiglu(Queue* queue, const float* gate, const float* up, int64_t size, float* y) {
  LETHE_CHECK(size >= 0);
  if (size == 0) return absl::OkStatus();
  if (IsCuda(queue)) {
    return LETHE_ON_CUDA(BinaryCuda(queue, Binary::kSwiglu, gate, up, size, y));
  }
  SwigluCpu(gate, up, size, y);
  return absl::OkStatus();
}

absl::Status Add(Queue* queue, const float* y, int64_t size, float* x) {
  LETHE_CHECK(size >= 0);
  if (size == 0) return absl::OkStatus();
  if (IsCuda(queue)) return LETHE_ON_CUDA(BinaryCuda(queue, Binary::kAdd, x, y, size, x));
  for (int64_t i = 0; i < size; ++i) x[i] += y[i];
  return absl::OkStatus();
}

absl::Status Multiply(Queue* queue, const float* factor, int64_t size, float* x) {
  LETHE_CHECK(size >= 0);
  if (size == 0) return absl::OkStatus();
  if (IsCuda(queue)) {
    return LETHE_ON_CUDA(BinaryCuda(queue, Binary::kMultiply, x, factor, size, x));
  }
  for (int64_t i = 0; i < size; ++i) x[i] *= factor[i];
  return absl::OkStatus();
}

absl::Status AddRow(Queue* queue, const float* row, const Matrix& shape, float* x) {
  CheckShape(shape);
  if (shape.num_rows == 0) return absl::OkStatus();
  if (IsCuda(queue)) {
    return LETHE_ON_CUDA(BroadcastCuda(queue, Broadcast::kAddRow, x, row, shape, x));
  }
  for (int64_t i = 0; i < shape.size(); ++i) x[i] += row[i % shape.num_columns];
  return absl::OkStatus();
}

absl::Status ScaleColumns(Queue* queue, const float* row, const Matrix& shape, float* x) {
  CheckShape(shape);
  if (shape.num_rows == 0) return absl::OkStatus();
  if (IsCuda(queue)) {
    return LETHE_ON_CUDA(BroadcastCuda(queue, Broadcast::kScaleColumns, x, row, shape, x));
  }
  for (int64_t i = 0; i < shape.size(); ++i) x[i] *= row[i % shape.num_columns];
  return absl::OkStatus();
}

absl::Status ScaleRows(Queue* queue, const float* factor, const float* x, const Matrix& shape,
                       float* y) {
  CheckShape(shape);
  if (shape.num_rows == 0) return absl::OkStatus();
  if (IsCuda(queue)) {
    return LETHE_ON_CUDA(BroadcastCuda(queue, Broadcast::kScaleRows, x, factor, shape, y));
  }
  for (int64_t i = 0; i < shape.size(); ++i) y[i] = factor[i / shape.num_columns] * x[i];
  return absl::OkStatus();
}

absl::Status AddSkip(Queue* queue, const float* skip, const float* x, const Matrix& shape,
                     int64_t num_heads, float* y) {
  CheckShape(shape);
  LETHE_CHECK(num_heads >= 1 && shape.num_columns % num_heads == 0);
  if (shape.num_rows == 0) return absl::OkStatus();
  const int64_t head_columns = shape.num_columns / num_heads;
  if (IsCuda(queue)) return LETHE_ON_CUDA(AddSkipCuda(queue, skip, x, shape, head_columns, y));
  for (int64_t i = 0; i < shape.size(); ++i) {
    y[i] = std::fma(skip[i % shape.num_columns / head_columns], x[i], y[i]);
  }
  return absl::OkStatus();
}

absl::Status L2NormalizeRows(Queue* queue, const float* x, const Matrix& shape, float divisor,
                             float* y) {
  CheckShape(shape);
  if (shape.num_rows == 0) return absl::OkStatus();
  if (IsCuda(queue)) return LETHE_ON_CUDA(L2NormalizeRowsCuda(queue, x, shape, divisor, y));
  L2NormalizeRowsCpu(x, shape, divisor, y);
  return absl::OkStatus();
}

absl::Status MarkNonFinite(Queue* queue, const float* x, const Matrix& shape, uint8_t* is_bad) {
  CheckShape(shape);
  if (shape.num_rows == 0) return absl::OkStatus();
  if (IsCuda(queue)) return LETHE_ON_CUDA(MarkNonFiniteCuda(queue, x, shape, is_bad));
  for (int64_t i = 0; i < shape.size(); ++i) {
    if (!std::isfinite(x[i])) is_bad[i / shape.num_columns] = 1;
  }
  return absl::OkStatus();
}

}  // namespace lethe::elementwise
