// cuda::RowNorm: rows divided by a root of their sum of squares; what RMSNorm and L2 normalisation share on
// the device.
//
// Equation:  y_i = finish(x_i, root, i), root = root_of(sum_j x_j^2).
// Shapes:    x, y: [num_rows][num_columns]; y may be x.
// Units:     none.
// Requires:  num_rows, num_columns >= 1.
// Rejects:   none; the caller asks for the launch's status.
// Effects:   enqueues the work that writes y.
// Numerics:  the sum has the 8 lanes and the tree of kernels/math's Dot, whichever form is taken.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_MATH_ROW_NORM_CUDA_CUH_
#define LETHE_KERNELS_MATH_ROW_NORM_CUDA_CUH_

#include <algorithm>
#include <cstdint>

#include "kernels/base/queue.h"
#include "kernels/math/math_cuda.cuh"

namespace lethe::cuda {

inline constexpr int kRowNormThreads = 256;
// Up to here eight threads take a row straight from memory, a warp has four; longer rows pass through
// shared memory, a warp has one.
inline constexpr int kShortRow = 128;
inline constexpr int kRowNormFloats = 48 * 1024 / sizeof(float);  // of shared memory

// grid: rows by kRowNormThreads / 8.
template <class RootOf, class Finish>
__global__ void __launch_bounds__(kRowNormThreads)
    ShortRowNormKernel(const float* x, int64_t num_rows, int num_columns, RootOf root_of,
                       Finish finish, float* y) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * kRowNormThreads + threadIdx.x) / 8;
  const int lane = static_cast<int>(threadIdx.x) % 8;
  const bool is_there = row < num_rows;  // all lanes of a warp meet in the tree
  x += row * num_columns;
  y += row * num_columns;
  float sum = 0.0f;
  if (is_there) {
#pragma unroll 8
    for (int i = lane; i < num_columns; i += 8) sum = fmaf(x[i], x[i], sum);
  }
  const float root = root_of(SumTree(sum));
  if (!is_there) return;
#pragma unroll 8
  for (int i = lane; i < num_columns; i += 8) y[i] = finish(x[i], root, i);
}

// grid: rows by warps of a block; dynamic shared memory: a row a warp. x and y aligned to 16 bytes where
// num_columns is a multiple of 4 (in_fours).
template <class RootOf, class Finish>
__global__ void __launch_bounds__(kRowNormThreads)
    RowNormKernel(const float* x, int64_t num_rows, int num_columns, bool in_fours, RootOf root_of,
                  Finish finish, float* y) {
  extern __shared__ float4 staged[];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (row >= num_rows) return;
  x += row * num_columns;
  y += row * num_columns;
  const int num_fours = (num_columns + 3) / 4;
  float4* fours = staged + warp * num_fours;
  auto* values = reinterpret_cast<float*>(fours);
  if (in_fours) {
#pragma unroll 8
    for (int i = lane; i < num_fours; i += 32) {
      fours[i] = reinterpret_cast<const float4*>(x)[i];
    }
  } else {
    for (int i = lane; i < num_columns; i += 32) values[i] = x[i];
  }
  __syncwarp();
  float sum = 0.0f;
  // Every eight lanes do the same.
#pragma unroll 16
  for (int i = lane % 8; i < num_columns; i += 8) sum = fmaf(values[i], values[i], sum);
  const float root = root_of(SumTree(sum));
  if (in_fours) {
#pragma unroll 4
    for (int i = lane; i < num_fours; i += 32) {
      const float4 v = fours[i];
      reinterpret_cast<float4*>(y)[i] = {finish(v.x, root, 4 * i), finish(v.y, root, 4 * i + 1),
                                         finish(v.z, root, 4 * i + 2),
                                         finish(v.w, root, 4 * i + 3)};
    }
  } else {
    for (int i = lane; i < num_columns; i += 32) y[i] = finish(values[i], root, i);
  }
}

template <class RootOf, class Finish>
void RowNorm(Queue* queue, const float* x, int64_t num_rows, int num_columns, RootOf root_of,
             Finish finish, float* y) {
  const int padded = (num_columns + 3) / 4 * 4;
  const auto blocks = [num_rows](int64_t rows_per_block) {
    return static_cast<unsigned>((num_rows + rows_per_block - 1) / rows_per_block);
  };
  if (num_columns <= kShortRow || padded > kRowNormFloats) {
    ShortRowNormKernel<<<blocks(kRowNormThreads / 8), kRowNormThreads, 0, queue->stream()>>>(
        x, num_rows, num_columns, root_of, finish, y);
    return;
  }
  const int warps = std::min(kRowNormThreads / 32, kRowNormFloats / padded);
  const bool in_fours = num_columns % 4 == 0 &&
                        reinterpret_cast<uintptr_t>(x) % sizeof(float4) == 0 &&
                        reinterpret_cast<uintptr_t>(y) % sizeof(float4) == 0;
  RowNormKernel<<<blocks(warps), static_cast<unsigned>(warps * 32),
                  static_cast<size_t>(warps * padded) * sizeof(float), queue->stream()>>>(
      x, num_rows, num_columns, in_fours, root_of, finish, y);
}

}  // namespace lethe::cuda

#endif  // LETHE_KERNELS_MATH_ROW_NORM_CUDA_CUH_
