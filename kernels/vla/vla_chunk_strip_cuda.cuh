// A warp's strip of 16 rows of a 64 x D matrix in registers, as sums or as left operands, and its warpgroup's
// products with matrices in shared memory. For VlaChunk's stage keys on sm_90a.
#ifndef LETHE_KERNELS_VLA_VLA_CHUNK_STRIP_CUDA_CUH_
#define LETHE_KERNELS_VLA_VLA_CHUNK_STRIP_CUDA_CUH_

#include "kernels/vla/vla_chunk_inverse_cuda.cuh"
#include "kernels/vla/vla_chunk_warpgroup_cuda.cuh"

namespace lethe::vla_chunk {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

using TokenPanels = Panels<kTokens>;

template <int kBlocks>
__device__ __forceinline__ void Round(const Block (&x)[kBlocks], Left (&rounded)[kBlocks]) {
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) rounded[n] = HalfBlock(x[n]);
}

template <int kBlocks>
__device__ __forceinline__ void Unround(const Left (&rounded)[kBlocks], Block (&x)[kBlocks]) {
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 pair = UnpackHalf(rounded[n].r[e]);
      x[n][e / 2][e % 2 * 2] = pair.x;
      x[n][e / 2][e % 2 * 2 + 1] = pair.y;
    }
  }
}

template <int kBlocks>
__device__ __forceinline__ void Take(const TokenPanels& from, int row, Left (&x)[kBlocks]) {
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) x[n] = from.LeftAt(row, n * kTile);
}

template <int kBlocks>
__device__ __forceinline__ void Put(const Left (&x)[kBlocks], const TokenPanels& to, int row) {
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) to.Store(row, n * kTile, x[n]);
}
template <int kBlocks>
__device__ __forceinline__ void Put(const Block (&x)[kBlocks], const TokenPanels& to, int row) {
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) to.Store(row, n * kTile, HalfBlock(x[n]));
}

// Multiplies the lane's two rows.
template <int kBlocks>
__device__ __forceinline__ void MultiplyRows(float upper, float lower, Block (&x)[kBlocks]) {
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
    for (int e = 0; e < 8; ++e) x[n][e / 4][e % 4] *= e % 4 < 2 ? upper : lower;
  }
}

// Rows to length 1, where epsilon is added to their squares.
template <int kBlocks>
__device__ __forceinline__ void Normalize(float epsilon, Block (&x)[kBlocks]) {
  float upper = 0.0f;
  float lower = 0.0f;
#pragma unroll
  for (int n = 0; n < 2 * kBlocks; ++n) {
    const float(&c)[4] = x[n / 2][n % 2];
    upper = __fmaf_rn(c[0], c[0], __fmaf_rn(c[1], c[1], upper));
    lower = __fmaf_rn(c[2], c[2], __fmaf_rn(c[3], c[3], lower));
  }
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    upper += __shfl_xor_sync(kFullWarp, upper, distance);
    lower += __shfl_xor_sync(kFullWarp, lower, distance);
  }
  MultiplyRows(ReciprocalRoot(upper + epsilon), ReciprocalRoot(lower + epsilon), x);
}

// As left operand, times -1, with zeros above the diagonal of the 64 x 64 matrix whose rows these are.
__device__ __forceinline__ void MinusLower(int row, Block (&c)[4], Left (&lower)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    ForEachPairOfBlock(row, j * kTile, c[j], [](int i, int s, float& first, float& second) {
      first = s <= i ? -first : 0.0f;
      second = s + 1 <= i ? -second : 0.0f;
    });
    lower[j] = HalfBlock(c[j]);
  }
}

// y = x l^T of a lower triangular l, whose blocks are zeros above the diagonal within 64 x 64.
template <int kBlocks>
__device__ __forceinline__ void MultiplyTransposed(const Panels<kBlocks * kTile>& l,
                                                   Left (&x)[kBlocks], Block (&y)[kBlocks]) {
  Hold(x);
  BeginProducts();
#pragma unroll
  for (int n = 0; n < kBlocks; n += kPanelBlocks) {
#pragma unroll
    for (int k = 0; k < n + kPanelBlocks; ++k) {
      Wgmma<false>(x[k], l.OfRows(n * kTile, k * kTile), k > 0, y + n);
    }
  }
  EndProducts();
  Hold(y);
}

// y = x l
template <int kBlocks>
__device__ __forceinline__ void Multiply(const Panels<kBlocks * kTile>& l, Left (&x)[kBlocks],
                                         Block (&y)[kBlocks]) {
  Hold(x);
  BeginProducts();
#pragma unroll
  for (int n = 0; n < kBlocks; n += kPanelBlocks) {
#pragma unroll
    for (int k = n; k < kBlocks; ++k) {
      Wgmma<true>(x[k], l.OfColumns(k * kTile, n * kTile), k > n, y + n);
    }
  }
  EndProducts();
  Hold(y);
}

// c = x m^T: with every token's row.
template <int kBlocks>
__device__ __forceinline__ void MultiplyTokens(const TokenPanels& m, Left (&x)[kBlocks],
                                               Block (&c)[4]) {
  Hold(x);
  BeginProducts();
#pragma unroll
  for (int k = 0; k < kBlocks; ++k) Wgmma<false>(x[k], m.OfRows(0, k * kTile), k > 0, c);
  EndProducts();
  Hold(c);
}

// y = c m, or with kAdds y += c m: of the tokens' rows.
template <bool kAdds, int kBlocks>
__device__ __forceinline__ void CombineTokens(const TokenPanels& m, Left (&c)[4],
                                              Block (&y)[kBlocks]) {
  Hold(c);
  if constexpr (kAdds) Hold(y);
  BeginProducts();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
#pragma unroll
    for (int n = 0; n < kBlocks; n += kPanelBlocks) {
      Wgmma<true>(c[k], m.OfColumns(k * kTile, n * kTile), kAdds || k > 0, y + n);
    }
  }
  EndProducts();
  Hold(y);
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace lethe::vla_chunk

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_STRIP_CUDA_CUH_
