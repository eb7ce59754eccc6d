// InvertUnitLower: the inverse of a chunk's 64 x 64 unit lower matrix. For VlaChunk's stage keys on sm_90a.
#ifndef LETHE_KERNELS_VLA_VLA_CHUNK_MIXING_CUDA_CUH_
#define LETHE_KERNELS_VLA_VLA_CHUNK_MIXING_CUDA_CUH_

#include "kernels/vla/vla_chunk_inverse_cuda.cuh"

namespace lethe::vla_chunk {

// Words of shared memory that InvertUnitLower uses: each warp's diagonal block and eight blocks of f16.
inline constexpr int kMixingWords = 4 * kBlockFloats + 8 * TileBlocks<false>::kWords;

// Of values, so that both stay in registers.
__device__ __forceinline__ Left Select(bool takes_first, const Left& x, const Left& y) {
  Left selected;
#pragma unroll
  for (int e = 0; e < 4; ++e) selected.r[e] = takes_first ? x.r[e] : y.r[e];
  return selected;
}

// c = a b
__device__ __forceinline__ Left Product(const Left& a, const Right& b) {
  Block c;
  ClearBlock(c);
  AddProduct(a, b, c);
  return HalfBlock(c);
}

// Rows 2 and 3 of blocks, columns 0 and 1: -C^-1 (B A^-1), of [[A, 0], [B, C]]. `b0`, `b1` are the warp's of B,
// `minus_own` and `minus_beside` -C^-1's in the warp's row: (3, 2) counts for warp 3 only.
__device__ __forceinline__ void InvertLowerLeft(int warp, const TileBlocks<false>& blocks,
                                                const Left& b0, const Left& b1,
                                                const Left& minus_own, const Left& minus_beside,
                                                Left* first, Left* second) {
  Block z[2];
  ClearBlock(z[0]);
  if (warp >= 2) {
    AddProduct(b0, blocks.OfColumns(0), z[0]);
    AddProduct(b1, blocks.OfColumns(4), z[0]);
    *first = HalfBlock(z[0]);
    *second = Product(b1, blocks.OfColumns(1));
    if (warp == 2) {
      blocks.Store(6, *first);
      blocks.Store(7, *second);
    }
  }
  __syncthreads();
  if (warp < 2) return;
  ClearBlock(z[0]);
  ClearBlock(z[1]);
  AddProduct(minus_own, Transposed(*first), z[0]);
  AddProduct(minus_own, Transposed(*second), z[1]);
  if (warp == 3) {
    AddProduct(minus_beside, blocks.OfColumns(6), z[0]);
    AddProduct(minus_beside, blocks.OfColumns(7), z[1]);
  }
  *first = HalfBlock(z[0]);
  *second = HalfBlock(z[1]);
}

// (I + w)^-1 of w's strict lower triangle, by a block of 4 warps, each with a row of 16 x 16 blocks; by halves:
// [[A, 0], [B, C]]^-1 = [[A^-1, 0], [-C^-1 B A^-1, C^-1]]. The caller has a barrier before anything else is
// written to `shared`.
__device__ __forceinline__ void InvertUnitLower(int warp, uint32_t* shared, Block (&w)[4],
                                                Left (&inverse)[4]) {
  float* diagonal = reinterpret_cast<float*>(shared) + warp * kBlockFloats;
  // 0 … 3: the diagonal; 4, 5: (1, 0), (3, 2); 6, 7: of warp 2's B A^-1
  const TileBlocks<false> blocks{shared + 4 * kBlockFloats};
  Left b[3];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (j < 3) b[j] = HalfBlock(w[j]);
    if (j == warp) StoreAccumulator(diagonal, kBlockStride, w[j]);
  }
  __syncwarp();
  InvertUnitDiagonal(diagonal);
  Block x;
  LoadAccumulator(diagonal, kBlockStride, x);
  const Left own = HalfBlock(x);
  const Left minus_own = Minus(own);
  blocks.Store(warp, own);
  __syncthreads();
  const Left none{};
  Left beside = none;  // (1, 0), (3, 2)
  if (warp & 1) {
    ClearBlock(x);
    AddProduct(Select(warp == 1, b[0], b[2]), blocks.OfColumns(warp - 1), x);
    beside = Product(minus_own, RightOf<false>(x));
    blocks.Store(4 + warp / 2, beside);
  }
  __syncthreads();
  Left first = none;
  Left second = none;
  InvertLowerLeft(warp, blocks, b[0], b[1], minus_own, Minus(beside), &first, &second);
  inverse[0] = Select(warp == 0, own, Select(warp == 1, beside, first));
  inverse[1] = Select(warp == 0, none, Select(warp == 1, own, second));
  inverse[2] = Select(warp < 2, none, Select(warp == 2, own, beside));
  inverse[3] = Select(warp < 3, none, own);
}

}  // namespace lethe::vla_chunk

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_MIXING_CUDA_CUH_
