#include <algorithm>
#include <cstdint>

#include "kernels/math/row_norm_cuda.cuh"
#include "kernels/rms_norm/residual_norm_cuda.h"

namespace lethe::rms_norm {
namespace {

using cuda::kRowNormFloats;
using cuda::kRowNormThreads;
using cuda::kShortRow;

// The numbers that are normalised, of all rows behind each other. Value may be asked twice before Keep.
struct AddedRows {
  const float* y;
  float* x;
  __device__ float Value(int64_t i) const { return x[i] + y[i]; }
  __device__ void Keep(int64_t i, float value) const { x[i] = value; }
};
struct SkippedRows {
  const float* skip;
  const float* x;
  const float* gate;
  const float* y;
  unsigned head_columns;
  unsigned num_heads;
  __device__ float Value(int64_t i) const {
    const unsigned head = static_cast<unsigned>(i) / head_columns % num_heads;
    const float sum = fmaf(skip[head], x[i], y[i]);
    return gate != nullptr ? sum * gate[i] : sum;
  }
  __device__ void Keep(int64_t /*i*/, float /*value*/) const {}
};

__device__ __forceinline__ float RootOf(float sum, int num_channels, float epsilon) {
  return sqrtf(sum / static_cast<float>(num_channels) + epsilon);
}

// Eight threads a row. grid: rows by kRowNormThreads / 8.
template <class Rows>
__global__ void __launch_bounds__(kRowNormThreads)
    ShortRowsKernel(const Rows rows, int64_t num_rows, int num_channels, const float* gain,
                    float epsilon, float* normed) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * kRowNormThreads + threadIdx.x) / 8;
  const int lane = static_cast<int>(threadIdx.x) % 8;
  const bool is_there = row < num_rows;  // all lanes of a warp meet in the tree
  const int64_t first = row * num_channels;
  float sum = 0.0f;
  if (is_there) {
#pragma unroll 8
    for (int i = lane; i < num_channels; i += 8) {
      const float value = rows.Value(first + i);
      sum = fmaf(value, value, sum);
    }
  }
  const float root = RootOf(cuda::SumTree(sum), num_channels, epsilon);
  if (!is_there) return;
#pragma unroll 8
  for (int i = lane; i < num_channels; i += 8) {
    const float value = rows.Value(first + i);
    rows.Keep(first + i, value);
    normed[first + i] = value / root * gain[i];
  }
}

// A warp a row. grid: rows by warps of a block; dynamic shared memory: a row a warp.
template <class Rows>
__global__ void __launch_bounds__(kRowNormThreads)
    LongRowsKernel(const Rows rows, int64_t num_rows, int num_channels, const float* gain,
                   float epsilon, float* normed) {
  extern __shared__ float staged[];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (row >= num_rows) return;
  const int64_t first = row * num_channels;
  float* values = staged + warp * num_channels;
#pragma unroll 8
  for (int i = lane; i < num_channels; i += 32) {
    const float value = rows.Value(first + i);
    rows.Keep(first + i, value);
    values[i] = value;
  }
  __syncwarp();
  float sum = 0.0f;
  // Every eight lanes do the same.
#pragma unroll 16
  for (int i = lane % 8; i < num_channels; i += 8) sum = fmaf(values[i], values[i], sum);
  const float root = RootOf(cuda::SumTree(sum), num_channels, epsilon);
#pragma unroll 8
  for (int i = lane; i < num_channels; i += 32) normed[first + i] = values[i] / root * gain[i];
}

template <class Rows>
absl::Status Normalize(Queue* queue, const char* name, const Rows& rows, int64_t num_rows,
                       int num_channels, const float* gain, float epsilon, float* normed) {
  const auto blocks = [num_rows](int64_t rows_per_block) {
    return static_cast<unsigned>((num_rows + rows_per_block - 1) / rows_per_block);
  };
  if (num_channels <= kShortRow) {
    ShortRowsKernel<<<blocks(kRowNormThreads / 8), kRowNormThreads, 0, queue->stream()>>>(
        rows, num_rows, num_channels, gain, epsilon, normed);
  } else {
    const int warps = std::min(kRowNormThreads / 32, kRowNormFloats / num_channels);
    LongRowsKernel<<<blocks(warps), static_cast<unsigned>(warps * 32),
                     static_cast<size_t>(warps * num_channels) * sizeof(float), queue->stream()>>>(
        rows, num_rows, num_channels, gain, epsilon, normed);
  }
  return queue->LaunchStatus(name);
}

}  // namespace

absl::Status AddNormCuda(Queue* queue, const float* y, int64_t num_rows, const float* gain,
                         int num_channels, float epsilon, float* x, float* normed) {
  return Normalize(queue, "add and norm", AddedRows{y, x}, num_rows, num_channels, gain, epsilon,
                   normed);
}

absl::Status SkipNormCuda(Queue* queue, const SkipShape& shape, const float* skip, const float* x,
                          const float* gate, const float* gain, float epsilon, float* y) {
  const SkippedRows rows{skip,
                         x,
                         gate,
                         y,
                         static_cast<unsigned>(shape.head_columns),
                         static_cast<unsigned>(shape.num_heads)};
  return Normalize(queue, "skip and norm", rows, shape.size() / shape.num_channels,
                   static_cast<int>(shape.num_channels), gain, epsilon, y);
}

}  // namespace lethe::rms_norm
