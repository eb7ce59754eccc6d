#include "kernels/rms_norm/residual_norm.h"

#include <cmath>

#include "kernels/base/check.h"
#include "kernels/base/on_cuda.h"
#include "kernels/rms_norm/residual_norm_cuda.h"
#include "kernels/rms_norm/rms_norm.h"

namespace lethe {
namespace {

constexpr int64_t kChannelsMax = 12288;  // a row fits shared memory

void Normalize(const float* x, int64_t size, const float* gain, int64_t num_channels, float epsilon,
               float* y) {
  const auto count = static_cast<size_t>(size);
  RmsNorm(absl::MakeConstSpan(x, count),
          absl::MakeConstSpan(gain, static_cast<size_t>(num_channels)), epsilon,
          absl::MakeSpan(y, count));
}

}  // namespace

absl::Status AddNormBatch(Queue* queue, const float* y, int64_t num_rows, const float* gain,
                          int64_t num_channels, float epsilon, float* x, float* normed) {
  LETHE_CHECK(num_rows >= 0 && num_channels >= 1 && num_channels <= kChannelsMax);
  if (num_rows == 0) return absl::OkStatus();
  if (queue->kind() == DeviceKind::kCuda) {
    return LETHE_ON_CUDA(rms_norm::AddNormCuda(queue, y, num_rows, gain,
                                               static_cast<int>(num_channels), epsilon, x, normed));
  }
  const int64_t size = num_rows * num_channels;
  for (int64_t i = 0; i < size; ++i) x[i] += y[i];
  Normalize(x, size, gain, num_channels, epsilon, normed);
  return absl::OkStatus();
}

absl::Status SkipNormBatch(Queue* queue, const SkipShape& shape, const float* skip, const float* x,
                           const float* gate, const float* gain, float epsilon, float* y) {
  LETHE_CHECK(shape.num_rows >= 0 && shape.num_heads >= 1 && shape.head_columns >= 1);
  LETHE_CHECK(shape.num_channels >= 1 && shape.num_channels <= kChannelsMax);
  LETHE_CHECK(shape.num_heads * shape.head_columns % shape.num_channels == 0);
  if (shape.num_rows == 0) return absl::OkStatus();
  if (queue->kind() == DeviceKind::kCuda) {
    return LETHE_ON_CUDA(rms_norm::SkipNormCuda(queue, shape, skip, x, gate, gain, epsilon, y));
  }
  for (int64_t i = 0; i < shape.size(); ++i) {
    y[i] = std::fma(skip[i / shape.head_columns % shape.num_heads], x[i], y[i]);
    if (gate != nullptr) y[i] *= gate[i];
  }
  Normalize(y, shape.size(), gain, shape.num_channels, epsilon, y);
  return absl::OkStatus();
}

}  // namespace lethe
