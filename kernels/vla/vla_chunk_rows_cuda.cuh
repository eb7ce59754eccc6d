// LoadRows: a chunk's 64 rows of one head, as f16 in shared memory. For VlaChunk's kernels.
#ifndef LETHE_KERNELS_VLA_VLA_CHUNK_ROWS_CUDA_CUH_
#define LETHE_KERNELS_VLA_VLA_CHUNK_ROWS_CUDA_CUH_

#include "kernels/vla/vla_chunk_half_cuda.cuh"
#include "kernels/vla/vla_chunk_inverse_cuda.cuh"

namespace lethe::vla_chunk {

enum class RowScaling {
  kNone,
  kUnit,   // to length 1: x / sqrt(sum x^2 + 1e-12)
  kPower,  // by a power of 2 that brings the largest element to 2^4 … 2^5
};

// By all kWarps warps of a block. `scales` (kPower): where the powers go.
template <int kDim, int kWarps, RowScaling kScaling, typename Matrix>
__device__ __forceinline__ void LoadRows(int warp, const float* rows, int64_t stride,
                                         const Matrix& to, float* scales = nullptr) {
  constexpr int kLanes = kDim / 4;  // of a row
  constexpr int kAtOnce = 32 / kLanes;
  constexpr int kPasses = kTokens / kWarps / kAtOnce;
  const int first = warp * (kTokens / kWarps) + Lane() / kLanes;
  const int column = Lane() % kLanes * 4;
  float4 x[kPasses];
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    x[i] = *reinterpret_cast<const float4*>(rows + (first + i * kAtOnce) * stride + column);
  }
#pragma unroll
  for (int i = 0; i < kPasses; ++i) {
    const int row = first + i * kAtOnce;
    float by = 1.0f;
    if constexpr (kScaling == RowScaling::kUnit) {
      float sum = __fmaf_rn(x[i].x, x[i].x, x[i].y * x[i].y);
      sum = __fmaf_rn(x[i].z, x[i].z, __fmaf_rn(x[i].w, x[i].w, sum));
#pragma unroll
      for (int distance = 1; distance < kLanes; distance *= 2) {
        sum += __shfl_xor_sync(kFullWarp, sum, distance);
      }
      by = ReciprocalRoot(sum + 1e-12f);
    } else if constexpr (kScaling == RowScaling::kPower) {
      uint32_t largest =
          max(max(Magnitude(x[i].x), Magnitude(x[i].y)), max(Magnitude(x[i].z), Magnitude(x[i].w)));
#pragma unroll
      for (int distance = 1; distance < kLanes; distance *= 2) {
        largest = max(largest, __shfl_xor_sync(kFullWarp, largest, distance));
      }
      by = ScaleOf<4>(largest).to;
      if (column == 0) scales[row] = by;
    }
    to.StorePair(row, column, x[i].x * by, x[i].y * by);
    to.StorePair(row, column + 2, x[i].z * by, x[i].w * by);
  }
}

}  // namespace lethe::vla_chunk

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_ROWS_CUDA_CUH_
