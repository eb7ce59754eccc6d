#include "kernels/elementwise/elementwise_cpu.h"

#include <vector>

#include "absl/types/span.h"

#include "kernels/math/math.h"

namespace lethe::elementwise {

void ApplyCpu(Function function, const float* x, int64_t size, float* y) {
  const auto from = absl::MakeConstSpan(x, static_cast<size_t>(size));
  const auto to = absl::MakeSpan(y, static_cast<size_t>(size));
  switch (function) {
    case Function::kExp:
      return Exp(from, to);
    case Function::kLog:
      return Log(from, to);
    case Function::kSigmoid:
      return Sigmoid(from, to);
    case Function::kSilu:
      return Silu(from, to);
    case Function::kSoftplus:
      return Softplus(from, to);
    case Function::kElu:
      return Elu(from, to);
    case Function::kEluPlusOne:
      return EluPlusOne(from, to);
  }
}

void SwigluCpu(const float* gate, const float* up, int64_t size, float* y) {
  for (int64_t i = 0; i < size; ++i) y[i] = Silu(gate[i]) * up[i];
}

void L2NormalizeRowsCpu(const float* x, const Matrix& shape, float divisor, float* y) {
  const auto columns = static_cast<size_t>(shape.num_columns);
  for (int64_t row = 0; row < shape.num_rows; ++row) {
    const absl::Span<float> to = absl::MakeSpan(y + row * shape.num_columns, columns);
    L2Normalize(absl::MakeConstSpan(x + row * shape.num_columns, columns), to);
    for (float& value : to) value /= divisor;
  }
}

}  // namespace lethe::elementwise
