// ChunkRows: a chunk's 64 rows of one head, on their way into shared memory as f16. For VlaChunk's kernels.
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

// What a thread has of them: a warp has 64 / kWarps rows, whole ones side by side.
template <int kDim, int kWarps>
class ChunkRows {
 public:
  __device__ __forceinline__ void Load(int warp, const float* rows, int64_t stride) {
    const float* from = rows + FirstRow(warp) * stride + Column();
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      x_[i] = *reinterpret_cast<const float4*>(from + i * kAtOnce * stride);
    }
  }

  // The greatest magnitude of the warp's rows.
  __device__ __forceinline__ uint32_t Largest() const {
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) largest = max(largest, LargestOfFour(x_[i]));
    return LargestOfWarp(largest);
  }

  // Times `by` where they are not scaled. `scales` (kPower): where the powers go.
  template <RowScaling kScaling, typename Matrix>
  __device__ __forceinline__ void Store(int warp, const Matrix& to, float by = 1.0f,
                                        float* scales = nullptr) const {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int row = FirstRow(warp) + i * kAtOnce;
      const float4& x = x_[i];
      if constexpr (kScaling == RowScaling::kUnit) {
        float sum = __fmaf_rn(x.x, x.x, x.y * x.y);
        sum = __fmaf_rn(x.z, x.z, __fmaf_rn(x.w, x.w, sum));
#pragma unroll
        for (int distance = 1; distance < kLanes; distance *= 2) {
          sum += __shfl_xor_sync(kFullWarp, sum, distance);
        }
        by = ReciprocalRoot(sum + 1e-12f);
      } else if constexpr (kScaling == RowScaling::kPower) {
        uint32_t largest = LargestOfFour(x);
#pragma unroll
        for (int distance = 1; distance < kLanes; distance *= 2) {
          largest = max(largest, __shfl_xor_sync(kFullWarp, largest, distance));
        }
        by = ScaleOf<4>(largest).to;
        if (Column() == 0) scales[row] = by;
      }
      to.StoreFour(row, Column(), make_float4(x.x * by, x.y * by, x.z * by, x.w * by));
    }
  }

 private:
  static constexpr int kLanes = kDim / 4;  // of a row
  static constexpr int kAtOnce = 32 / kLanes;
  static constexpr int kPasses = kTokens / kWarps / kAtOnce;

  static __device__ __forceinline__ int FirstRow(int warp) {
    return warp * (kTokens / kWarps) + Lane() / kLanes;
  }
  static __device__ __forceinline__ int Column() { return Lane() % kLanes * 4; }

  static __device__ __forceinline__ uint32_t LargestOfFour(const float4& x) {
    return max(max(Magnitude(x.x), Magnitude(x.y)), max(Magnitude(x.z), Magnitude(x.w)));
  }

  float4 x_[kPasses];
};

}  // namespace lethe::vla_chunk

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_ROWS_CUDA_CUH_
