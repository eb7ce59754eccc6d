// CholeskyInverse, InvertUnitDiagonal: triangular inverses in blocks of 16 x 16. For VlaChunk's kernels.
#ifndef LETHE_KERNELS_VLA_VLA_CHUNK_INVERSE_CUDA_CUH_
#define LETHE_KERNELS_VLA_VLA_CHUNK_INVERSE_CUDA_CUH_

#include "kernels/vla/vla_chunk_half_cuda.cuh"

namespace lethe::vla_chunk {

// A block of f32 in shared memory; rows 16-byte aligned.
inline constexpr int kBlockStride = 20;
inline constexpr int kBlockFloats = kTile * kBlockStride;

__device__ __forceinline__ void LoadAccumulator(const float* block, int stride, Block& c) {
  ForEachPairOfBlock(0, 0, c, [&](int i, int j, float& first, float& second) {
    const float2 pair = *reinterpret_cast<const float2*>(block + i * stride + j);
    first = pair.x;
    second = pair.y;
  });
}

__device__ __forceinline__ void StoreAccumulator(float* block, int stride, Block& c) {
  ForEachPairOfBlock(0, 0, c, [&](int i, int j, float first, float second) {
    *reinterpret_cast<float2*>(block + i * stride + j) = make_float2(first, second);
  });
}

// The hardware's approximation: 1 ulp.
__device__ __forceinline__ float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float LargerOrNan(float x, float y) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
  return larger;
}

// The hardware's approximation and a step of Newton: 1 ulp or two, no branches.
__device__ __forceinline__ float ReciprocalRoot(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return __fmaf_rn(0.5f * y, __fmaf_rn(-x * y, y, 1.0f), y);
}

// The inverse of a diagonal block's Cholesky factor, in place, with zeros above the diagonal; by one
// warp. Elimination in [a I]: lane c < 16 holds column c of a, lane 16 + c column c of I. Of a the
// lower triangle is read; it stays symmetric, so that a step's column is the row that the lanes have
// side by side, and passes through the block's own place; the pivot, which every step waits for, comes
// faster by a shuffle. Pivots are at least pivot_min in exact arithmetic, so they are held there; NaN
// passes.
__device__ __forceinline__ void InvertDiagonal(float* block, float pivot_min) {
  const int column = Lane() & 15;
  const bool is_identity = Lane() >= 16;
  float x[kTile];
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const float element =
        i >= column ? block[i * kBlockStride + column] : block[column * kBlockStride + i];
    x[i] = is_identity ? (i == column ? 1.0f : 0.0f) : element;
  }
  __syncwarp();
#pragma unroll
  for (int p = 0; p < kTile; ++p) {
    float* row = block + p * kBlockStride;
    if (!is_identity) row[column] = x[p];
    const float pivot = LargerOrNan(__shfl_sync(kFullWarp, x[p], p), pivot_min);
    const float factor = -x[p] * Reciprocal(pivot);
    x[p] *= ReciprocalRoot(pivot);
    __syncwarp();
    float of_row[kTile];
#pragma unroll
    for (int i = (p + 1) / 4 * 4; i < kTile; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(row + i);
      of_row[i] = four.x, of_row[i + 1] = four.y, of_row[i + 2] = four.z, of_row[i + 3] = four.w;
    }
#pragma unroll
    for (int i = p + 1; i < kTile; ++i) x[i] = __fmaf_rn(of_row[i], factor, x[i]);
  }
  __syncwarp();
  if (is_identity) {
#pragma unroll
    for (int i = 0; i < kTile; ++i) block[i * kBlockStride + column] = x[i];
  }
  __syncwarp();
}

// 2^e with 4^e about 1 / the largest diagonal element, which brings the factor's elements to at most 2
// and makes f16's absolute resolution one relative to the matrix.
__device__ __forceinline__ float InverseScale(float largest) {
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
  return __uint_as_float(static_cast<uint32_t>(127 - (exponent >> 1)) << 23);
}

// The largest diagonal element of lower blocks whose rows are `stride` floats apart, by a warp.
template <int kDim>
__device__ __forceinline__ float LargestDiagonal(const float* blocks, int block_floats,
                                                 int stride) {
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < kDim; i += 32) {
    const int row = i + Lane();
    largest = fmaxf(
        largest, blocks[LowerBlock(row >> 4, row >> 4) * block_floats + (row & 15) * (stride + 1)]);
  }
  return __uint_as_float(LargestOfWarp(Magnitude(largest)));
}

// Lower blocks of a symmetric positive definite matrix, dealt out to kWarps warps in turn: a warp's n-th
// is block warp + kWarps n.
template <int kBlocks, int kWarps>
inline constexpr int kOwnBlocks = (kBlocks * (kBlocks + 1) / 2 + kWarps - 1) / kWarps;

// The same by rows: a warp's n-th is (warp, n), n <= warp.
enum class Deal { kInTurn, kRows };
template <int kBlocks, int kWarps, Deal kDeal>
inline constexpr int kDealtBlocks = kDeal == Deal::kRows ? kBlocks : kOwnBlocks<kBlocks, kWarps>;

// Words of shared memory that CholeskyInverse uses: a diagonal block and two rows of blocks.
template <int kBlocks, bool kSplit>
inline constexpr int kInverseWords = kBlockFloats + 2 * kBlocks* TileBlocks<kSplit>::kWords;

// Replaces them (of diagonal blocks the lower triangle is read) by the inverse X of the Cholesky factor;
// diagonal blocks get zeros above the diagonal. Where kWarps is 1 a warp works alone. The caller has a
// barrier before anything else is written to `shared`.
//
// Gauss-Jordan in place. Step b: X_bb; L_ib = M_ib X_bb^T for i > b, X_bj = X_bb X_bj for j < b, all for
// everybody to see; then M_ij -= L_ib L_jb^T (j > b), X_ib = -L_ib X_bb, X_ij -= L_ib X_bj (j < b). Rows of
// blocks alternate between two places, so that nobody waits for the last step's readers.
template <int kBlocks, int kWarps, bool kSplit, Deal kDeal = Deal::kInTurn>
__device__ __forceinline__ void CholeskyInverse(int warp, float pivot_min, uint32_t* shared,
                                                Block (&c)[kDealtBlocks<kBlocks, kWarps, kDeal>]) {
  constexpr int kOwn = kDealtBlocks<kBlocks, kWarps, kDeal>;
  constexpr int kUnroll = kWarps == 1 ? kBlocks : 1;
  float* diagonal = reinterpret_cast<float*>(shared);
  const auto synchronize = [] {
    if constexpr (kWarps == 1) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  };
  int row[kOwn];
  int column[kOwn];
#pragma unroll
  for (int n = 0; n < kOwn; ++n) {
    if constexpr (kDeal == Deal::kRows) {
      row[n] = n <= warp ? warp : -1;
      column[n] = n <= warp ? n : -1;
    } else {
      BlockOf(warp + kWarps * n, &row[n], &column[n]);
      if (row[n] >= kBlocks) row[n] = column[n] = -1;
    }
  }
#pragma unroll kUnroll
  for (int b = 0; b < kBlocks; ++b) {
    const TileBlocks<kSplit> seen{shared + kBlockFloats +
                                  (b & 1) * kBlocks * TileBlocks<kSplit>::kWords};
    bool is_owner = false;
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      if (row[n] != b || column[n] != b) continue;
      StoreAccumulator(diagonal, kBlockStride, c[n]);
      is_owner = true;
    }
    if (is_owner) {
      __syncwarp();
      InvertDiagonal(diagonal, pivot_min);
#pragma unroll
      for (int n = 0; n < kOwn; ++n) {
        if (row[n] != b || column[n] != b) continue;
        LoadAccumulator(diagonal, kBlockStride, c[n]);
        seen.Store(b, c[n]);
      }
    }
    synchronize();
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      Block x;
      if (row[n] > b && column[n] == b) {
        ClearBlock(x);
        AddProduct(LeftOf<kSplit>(c[n]), seen.OfRows(b), x);
        seen.Store(row[n], x);
      } else if (row[n] == b && column[n] < b) {
        ClearBlock(x);
        AddProduct(seen.LeftAt(b), RightOf<kSplit>(c[n]), x);
        seen.Store(column[n], x);
#pragma unroll
        for (int e = 0; e < 8; ++e) c[n][e / 4][e % 4] = x[e / 4][e % 4];
      }
    }
    synchronize();
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      if (row[n] <= b) continue;
      const LeftTerms<kSplit> panel = Minus(seen.LeftAt(row[n]));
      if (column[n] == b) ClearBlock(c[n]);
      if (column[n] > b) {
        AddProduct(panel, seen.OfRows(column[n]), c[n]);
      } else {
        AddProduct(panel, seen.OfColumns(column[n]), c[n]);
      }
    }
  }
}

// One warp: a diagonal block b becomes (I + b)^-1; its strictly lower triangle is read. By columns.
__device__ __forceinline__ void InvertUnitDiagonal(float* block) {
  const int column = Lane() & 15;
  float x[kTile];
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int p = 0; p < i; p += 4) {
      const float4 row = *reinterpret_cast<const float4*>(block + i * kBlockStride + p);
      sum = __fmaf_rn(-row.x, x[p], sum);
      if (p + 1 < i) sum = __fmaf_rn(-row.y, x[p + 1], sum);
      if (p + 2 < i) sum = __fmaf_rn(-row.z, x[p + 2], sum);
      if (p + 3 < i) sum = __fmaf_rn(-row.w, x[p + 3], sum);
    }
    x[i] = sum;
  }
  __syncwarp();
  if (Lane() < kTile) {
#pragma unroll
    for (int i = 0; i < kTile; ++i) block[i * kBlockStride + column] = x[i];
  }
  __syncwarp();
}

}  // namespace lethe::vla_chunk

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_INVERSE_CUDA_CUH_
