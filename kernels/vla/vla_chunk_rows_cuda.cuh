// A warp's 16 rows of a chunk's matrices, in registers, and their products with L^-1. For VlaChunk's
// kernels.
#ifndef LETHE_KERNELS_VLA_VLA_CHUNK_ROWS_CUDA_CUH_
#define LETHE_KERNELS_VLA_VLA_CHUNK_ROWS_CUDA_CUH_

#include <utility>

#include "kernels/vla/vla_chunk_half_cuda.cuh"

namespace lethe::vla_chunk {

// 16 rows in accumulator blocks.
template <int kDim>
struct RowBlocks {
  static constexpr int kBlocks = kDim / kTile;
  Block block[kBlocks];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) ClearBlock(block[n]);
  }
  __device__ __forceinline__ void Multiply(float by) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int e = 0; e < 8; ++e) block[n][e / 4][e % 4] *= by;
    }
  }
  __device__ __forceinline__ void Load(const float* rows, int64_t stride, int row) {
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      ForEachPairOfBlock(row, n * kTile, block[n], [&](int i, int j, float& first, float& second) {
        const float2 pair = *reinterpret_cast<const float2*>(rows + i * stride + j);
        first = pair.x;
        second = pair.y;
      });
    }
  }
  // Scales each row to length 1; the lengths sqrt(sum x^2 + epsilon) of rows g and g + 8.
  __device__ __forceinline__ float2 Normalize(float epsilon = 1e-12f) {
    float upper = 0.0f;
    float lower = 0.0f;
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float(&c)[4] = block[n][half];
        upper = __fmaf_rn(c[0], c[0], __fmaf_rn(c[1], c[1], upper));
        lower = __fmaf_rn(c[2], c[2], __fmaf_rn(c[3], c[3], lower));
      }
    }
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
      upper += __shfl_xor_sync(kFullWarp, upper, distance);
      lower += __shfl_xor_sync(kFullWarp, lower, distance);
    }
    const float2 lengths = make_float2(__fsqrt_rn(upper + epsilon), __fsqrt_rn(lower + epsilon));
    const float of_upper = __frcp_rn(lengths.x);
    const float of_lower = __frcp_rn(lengths.y);
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&c)[4] = block[n][half];
        c[0] *= of_upper, c[1] *= of_upper, c[2] *= of_lower, c[3] *= of_lower;
      }
    }
    return lengths;
  }
};

// A lower block of L^-1 as stage invert leaves it in place of 256 floats: for each lane the right
// operand B(k, n) = x(n, k) in split f16, 16 bytes of high parts, then of low; times InverseUnit.
__device__ __forceinline__ SplitRight LoadInverseBlock(const float* packed, int row, int column) {
  const uint4* block =
      reinterpret_cast<const uint4*>(packed + LowerBlock(row, column) * kTile * kTile);
  const uint4 h = block[Lane()];
  const uint4 l = block[32 + Lane()];
  return {{{h.x, h.y, h.z, h.w}}, {{l.x, l.y, l.z, l.w}}};
}

__device__ __forceinline__ void StoreInverseBlock(const float* block, int stride, float unit,
                                                  float* packed) {
  const int g = Lane() >> 2;
  const int t = Lane() & 3;
  uint32_t h[4];
  uint32_t l[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair =
        *reinterpret_cast<const float2*>(block + (g + (i >> 1) * 8) * stride + 2 * t + (i & 1) * 8);
    SplitHalfPair(pair.x * unit, pair.y * unit, &h[i], &l[i]);
  }
  uint4* to = reinterpret_cast<uint4*>(packed);
  to[Lane()] = make_uint4(h[0], h[1], h[2], h[3]);
  to[32 + Lane()] = make_uint4(l[0], l[1], l[2], l[3]);
}

// Rows x to x L^-T, times the inverse's unit.
template <int kDim>
__device__ __forceinline__ void Whiten(const float* inverse, RowBlocks<kDim>* rows) {
  constexpr int kBlocks = kDim / kTile;
  SplitLeft x[kBlocks];
#pragma unroll
  for (int k = 0; k < kBlocks; ++k) x[k] = SplitHalfBlock(rows->block[k]);
  rows->Clear();
#pragma unroll
  for (int n = 0; n < kBlocks; n += 2) {
#pragma unroll
    for (int k = 0; k <= n; ++k) {
      const SplitRight b[2] = {LoadInverseBlock(inverse, n, k),
                               LoadInverseBlock(inverse, n + 1, k)};
      Block* const sums[2] = {&rows->block[n], &rows->block[n + 1]};
      AddSplitHalfProducts<2>(x[k], b, sums);
    }
    AddSplitHalfProduct(x[n + 1], LoadInverseBlock(inverse, n + 1, n + 1), rows->block[n + 1]);
  }
}

// Rows x to x L^-1, times the inverse's unit. Block n of the product is complete when block n of x has
// been used, not before, so it takes its place.
template <int kDim>
__device__ __forceinline__ void Unwhiten(const float* inverse, RowBlocks<kDim>* rows) {
  constexpr int kBlocks = kDim / kTile;
  const auto row = [&](auto k) {
    constexpr int kRow = decltype(k)::value;
    const SplitLeft x = SplitHalfBlock(rows->block[kRow]);
    ClearBlock(rows->block[kRow]);
    AddSplitHalfRow<0, kRow + 1>(
        x,
        [&](int n) {
          const SplitRight b = LoadInverseBlock(inverse, kRow, n);
          return SplitRight{Transposed(b.high), Transposed(b.low)};
        },
        true, rows->block);
  };
  [&]<int... kRows>(std::integer_sequence<int, kRows...>) {
    (row(std::integral_constant<int, kRows>()), ...);
  }
  (std::make_integer_sequence<int, kBlocks>());
}

// A warp's blocks of A B^T, 64 x 64 and lower: block j <= tile; what is above is not of use.
template <int kDim, typename LeftAt, typename RightAt>
__device__ __forceinline__ void LowerBlocks(int tile, LeftAt left_at, RightAt right_at,
                                            Block (&c)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) ClearBlock(c[j]);
#pragma unroll
  for (int k = 0; k < kDim / kTile; ++k) {
    AddSplitHalfRow<2, 4>(
        left_at(k), [&](int j) { return right_at(j, k); }, tile >= 2, c);
  }
}

}  // namespace lethe::vla_chunk

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_ROWS_CUDA_CUH_
