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

// The hardware's approximation and a step of Newton: 1 ulp or two, no branches.
__device__ __forceinline__ float ReciprocalRoot(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return __fmaf_rn(0.5f * y, __fmaf_rn(-x * y, y, 1.0f), y);
}

// Of a block's four pivots: the factor of their 4 x 4 block is unit lower l times the roots of pivots d.
struct Pivots {
  float l10, l20, l21, l30, l31, l32;
  float over[4];       // 1 / d
  float over_root[4];  // 1 / sqrt(d)
};

// Pivots are at least pivot_min in exact arithmetic, so they are held there; NaN passes. The hardware's
// approximations have 22 bits, as the split numbers that come of them.
__device__ __forceinline__ void Pivot(float d, float pivot_min, float* over, float* over_root) {
  d = d < pivot_min ? pivot_min : d;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(*over) : "f"(d));
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(*over_root) : "f"(d));
}

// Of the symmetric block with these rows.
__device__ __forceinline__ Pivots FactorPivots(const float4& a0, const float4& a1, const float4& a2,
                                               const float4& a3, float pivot_min) {
  Pivots p;
  Pivot(a0.x, pivot_min, &p.over[0], &p.over_root[0]);
  p.l10 = a0.y * p.over[0];
  p.l20 = a0.z * p.over[0];
  p.l30 = a0.w * p.over[0];
  Pivot(__fmaf_rn(-p.l10, a0.y, a1.y), pivot_min, &p.over[1], &p.over_root[1]);
  const float c21 = __fmaf_rn(-p.l20, a0.y, a1.z);
  const float c31 = __fmaf_rn(-p.l30, a0.y, a1.w);
  p.l21 = c21 * p.over[1];
  p.l31 = c31 * p.over[1];
  Pivot(__fmaf_rn(-p.l21, c21, __fmaf_rn(-p.l20, a0.z, a2.z)), pivot_min, &p.over[2],
        &p.over_root[2]);
  const float c32 = __fmaf_rn(-p.l31, c21, __fmaf_rn(-p.l30, a0.z, a2.w));
  p.l32 = c32 * p.over[2];
  Pivot(__fmaf_rn(-p.l32, c32, __fmaf_rn(-p.l31, c31, __fmaf_rn(-p.l30, a0.w, a3.w))), pivot_min,
        &p.over[3], &p.over_root[3]);
  return p;
}

// A column's four elements x, of which rows below take a multiple z, become rows of the inverse factor.
__device__ __forceinline__ void EliminateFour(const Pivots& p, float* x, float (&z)[4]) {
  x[1] = __fmaf_rn(-p.l10, x[0], x[1]);
  x[2] = __fmaf_rn(-p.l21, x[1], __fmaf_rn(-p.l20, x[0], x[2]));
  x[3] = __fmaf_rn(-p.l32, x[2], __fmaf_rn(-p.l31, x[1], __fmaf_rn(-p.l30, x[0], x[3])));
  z[3] = x[3] * p.over[3];
  z[2] = __fmaf_rn(-p.l32, z[3], x[2] * p.over[2]);
  z[1] = __fmaf_rn(-p.l31, z[3], __fmaf_rn(-p.l21, z[2], x[1] * p.over[1]));
  z[0] =
      __fmaf_rn(-p.l30, z[3], __fmaf_rn(-p.l20, z[2], __fmaf_rn(-p.l10, z[1], x[0] * p.over[0])));
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] *= p.over_root[i];
}

// The inverse of a diagonal block's Cholesky factor, in place, with zeros above the diagonal; by one
// warp. Elimination in [a I] by four rows at a time: lane c < 16 holds column c of a, lane 16 + c column
// c of I. Of a the lower triangle is read; it stays symmetric, so that what lanes share of their columns
// are rows too. Every lane factors the pivots' block for itself: four waits for shared memory, not 16.
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
  for (int p = 0; p < kTile; p += 4) {
    const auto row = [&](int i) {  // a's elements (p … p + 3, i)
      return *reinterpret_cast<const float4*>(block + i * kBlockStride + p);
    };
    if (!is_identity) {
      *reinterpret_cast<float4*>(block + column * kBlockStride + p) =
          make_float4(x[p], x[p + 1], x[p + 2], x[p + 3]);
    }
    __syncwarp();
    const Pivots pivots = FactorPivots(row(p), row(p + 1), row(p + 2), row(p + 3), pivot_min);
    float z[4];
    EliminateFour(pivots, x + p, z);
#pragma unroll
    for (int i = p + 4; i < kTile; ++i) {
      const float4 a = row(i);
      x[i] = __fmaf_rn(-a.x, z[0], x[i]);
      x[i] = __fmaf_rn(-a.y, z[1], x[i]);
      x[i] = __fmaf_rn(-a.z, z[2], x[i]);
      x[i] = __fmaf_rn(-a.w, z[3], x[i]);
    }
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
