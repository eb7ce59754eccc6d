#include "kernels/rms_norm/rms_norm_batch.h"

#include "kernels/base/check.h"
#include "kernels/base/on_cuda.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rms_norm/rms_norm_cuda.h"

namespace lethe {

absl::Status RmsNormBatch(Queue* queue, const float* x, int64_t num_rows, const float* gain,
                          int64_t num_channels, float epsilon, float* y) {
  LETHE_CHECK(num_rows >= 0 && num_channels >= 1);
  if (num_rows == 0) return absl::OkStatus();
  if (queue->kind() == DeviceKind::kCuda) {
    return LETHE_ON_CUDA(rms_norm::RmsNormCuda(queue, x, num_rows, gain,
                                               static_cast<int>(num_channels), epsilon, y));
  }
  const auto size = static_cast<size_t>(num_rows * num_channels);
  RmsNorm(absl::MakeConstSpan(x, size),
          absl::MakeConstSpan(gain, static_cast<size_t>(num_channels)), epsilon,
          absl::MakeSpan(y, size));
  return absl::OkStatus();
}

}  // namespace lethe
