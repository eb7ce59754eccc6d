#include "kernels/math/row_norm_cuda.cuh"
#include "kernels/rms_norm/rms_norm_cuda.h"

namespace lethe::rms_norm {
namespace {

struct RootMeanSquare {
  float num_channels;
  float epsilon;
  __device__ float operator()(float sum) const { return sqrtf(sum / num_channels + epsilon); }
};

struct ScaleByGain {
  const float* gain;
  __device__ float operator()(float x, float root, int channel) const {
    return x / root * gain[channel];
  }
};

}  // namespace

absl::Status RmsNormCuda(Queue* queue, const float* x, int64_t num_rows, const float* gain,
                         int num_channels, float epsilon, float* y) {
  cuda::RowNorm(queue, x, num_rows, num_channels,
                RootMeanSquare{static_cast<float>(num_channels), epsilon}, ScaleByGain{gain}, y);
  return queue->LaunchStatus("rms norm");
}

}  // namespace lethe::rms_norm
