#include "kernels/elementwise/columns.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/check.h"
#include "kernels/base/on_cuda.h"
#include "kernels/elementwise/columns_cuda.h"
#include "kernels/elementwise/elementwise_cpu.h"
#include "kernels/math/math.h"

namespace lethe::elementwise {
namespace {

constexpr int64_t kElementsMax = (int64_t{1} << 31) - 1;
constexpr int64_t kPartsMax = 65535;  // of a launch's grid

bool IsOnCuda(const Queue* queue) { return queue->kind() == DeviceKind::kCuda; }

void CheckMatrix(const Matrix& shape) {
  LETHE_CHECK(shape.num_rows >= 0 && shape.num_columns >= 1 && shape.size() <= kElementsMax);
}

void CheckParts(const Matrix& shape, int64_t num_parts, int64_t widest) {
  CheckMatrix(shape);
  LETHE_CHECK(num_parts >= 1 && num_parts <= kPartsMax && widest >= 1);
  LETHE_CHECK(shape.num_rows * widest <= kElementsMax);
}

float MapOf(Map map, float x) {
  switch (map) {
    case Map::kNone:
      return x;
    case Map::kSigmoid:
      return Sigmoid(x);
    case Map::kSilu:
      return Silu(x);
    case Map::kSoftplus:
      return Softplus(x);
    case Map::kEluPlusOne:
      return EluPlusOne(x);
  }
  return x;
}

void SplitRowOnHost(const SplitPart& part, const float* x, int64_t row, uint8_t* is_bad) {
  float* y = part.y + row * part.num_columns;
  for (int64_t c = 0; c < part.num_columns; ++c) {
    float value = x[part.begin + c];
    if (is_bad != nullptr && !std::isfinite(value)) {
      is_bad[row] = 1;
      value = 0.0f;
    }
    if (part.add != nullptr) value += part.add[c];
    value = MapOf(part.map, value);
    if (part.scale != nullptr) value *= part.scale[c];
    y[c] = value;
  }
}

void JoinRowOnHost(const JoinPart& part, int64_t row, float* y) {
  const int64_t first = row * part.num_columns;
  for (int64_t c = 0; c < part.num_columns; ++c) {
    float value = part.x[first + c];
    if (part.factor != nullptr) value *= part.factor[first + c];
    if (part.gain != nullptr) value *= part.gain[c % part.gain_columns];
    y[part.begin + c] = value;
  }
}

}  // namespace

absl::Status SplitColumns(Queue* queue, const float* x, const Matrix& shape, const SplitPart* parts,
                          int64_t num_parts, int64_t widest, uint8_t* is_bad) {
  CheckParts(shape, num_parts, widest);
  if (shape.num_rows == 0) return absl::OkStatus();
  if (IsOnCuda(queue)) {
    return LETHE_ON_CUDA(SplitColumnsCuda(queue, x, shape, parts, num_parts, widest, is_bad));
  }
  for (int64_t row = 0; row < shape.num_rows; ++row) {
    for (int64_t part = 0; part < num_parts; ++part) {
      SplitRowOnHost(parts[part], x + row * shape.num_columns, row, is_bad);
    }
  }
  return absl::OkStatus();
}

absl::Status JoinColumns(Queue* queue, const JoinPart* parts, int64_t num_parts, int64_t widest,
                         const Matrix& shape, float* y) {
  CheckParts(shape, num_parts, widest);
  if (shape.num_rows == 0) return absl::OkStatus();
  if (IsOnCuda(queue)) {
    return LETHE_ON_CUDA(JoinColumnsCuda(queue, parts, num_parts, widest, shape, y));
  }
  for (int64_t row = 0; row < shape.num_rows; ++row) {
    for (int64_t part = 0; part < num_parts; ++part) {
      JoinRowOnHost(parts[part], row, y + row * shape.num_columns);
    }
  }
  return absl::OkStatus();
}

absl::Status SwigluColumns(Queue* queue, const float* x, const Matrix& shape, float* y) {
  CheckMatrix(shape);
  if (shape.num_rows == 0) return absl::OkStatus();
  if (IsOnCuda(queue)) return LETHE_ON_CUDA(SwigluColumnsCuda(queue, x, shape, y));
  const int64_t columns = shape.num_columns;
  for (int64_t row = 0; row < shape.num_rows; ++row) {
    const float* gate = x + row * 2 * columns;
    for (int64_t c = 0; c < columns; ++c) y[row * columns + c] = Silu(gate[c]) * gate[columns + c];
  }
  return absl::OkStatus();
}

absl::Status ScaleHeads(Queue* queue, const float* gate, const float* gain, Map map, const float* x,
                        const Matrix& shape, int64_t num_heads, float* y) {
  CheckMatrix(shape);
  LETHE_CHECK(num_heads >= 1 && shape.num_columns % num_heads == 0);
  LETHE_CHECK(map == Map::kNone || map == Map::kSigmoid);
  if (shape.num_rows == 0) return absl::OkStatus();
  if (IsOnCuda(queue)) {
    return LETHE_ON_CUDA(ScaleHeadsCuda(queue, gate, gain, map, x, shape, num_heads, y));
  }
  const int64_t columns = shape.num_columns / num_heads;
  for (int64_t i = 0; i < shape.size(); ++i) {
    const int64_t head = i / columns;  // of the row
    const float factor = gain != nullptr ? gate[head] * gain[head % num_heads] : gate[head];
    y[i] = factor * MapOf(map, x[i]);
  }
  return absl::OkStatus();
}

absl::Status NormalizeHeads(Queue* queue, const HeadsPart* parts, int64_t num_parts, int64_t widest,
                            int64_t num_rows) {
  CheckParts({num_rows, 1}, num_parts, widest);
  if (num_rows == 0) return absl::OkStatus();
  if (IsOnCuda(queue)) {
    return LETHE_ON_CUDA(NormalizeHeadsCuda(queue, parts, num_parts, widest, num_rows));
  }
  for (int64_t i = 0; i < num_parts; ++i) {
    const HeadsPart& part = parts[i];
    const int64_t num_heads = num_rows * (part.num_columns / part.head_columns);
    L2NormalizeRowsCpu(part.x, {num_heads, part.head_columns}, 1.0f, part.x);
  }
  return absl::OkStatus();
}

absl::Status GatherRows(Queue* queue, const float* table, const int32_t* rows, const Matrix& shape,
                        float* y) {
  CheckMatrix(shape);
  if (shape.num_rows == 0) return absl::OkStatus();
  if (IsOnCuda(queue)) return LETHE_ON_CUDA(GatherRowsCuda(queue, table, rows, shape, y));
  const int64_t columns = shape.num_columns;
  for (int64_t row = 0; row < shape.num_rows; ++row) {
    std::copy_n(table + rows[row] * columns, columns, y + row * columns);
  }
  return absl::OkStatus();
}

}  // namespace lethe::elementwise
