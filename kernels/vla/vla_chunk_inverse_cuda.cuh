// CholeskyInverse, UnitLowerInverse: triangular inverses by a thread block in shared memory, in
// blocks of 16 x 16. For VlaChunk's kernels.
#ifndef LETHE_KERNELS_VLA_VLA_CHUNK_INVERSE_CUDA_CUH_
#define LETHE_KERNELS_VLA_VLA_CHUNK_INVERSE_CUDA_CUH_

#include "kernels/vla/vla_chunk_half_cuda.cuh"

namespace lethe::vla_chunk {

// The inverse of a diagonal block's Cholesky factor, in place, with zeros above the diagonal; by one
// warp. Elimination in [a I]: lane c < 16 holds column c of a, lane 16 + c column c of I. Of a the
// lower triangle is read. Pivots are at least pivot_min in exact arithmetic, so they are held there;
// NaN passes.
template <int kStride>
__device__ __forceinline__ void InvertDiagonal(float* block, float pivot_min) {
  const int column = Lane() & 15;
  const bool is_identity = Lane() >= 16;
  float x[kTile];
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const float element = i >= column ? block[i * kStride + column] : block[column * kStride + i];
    x[i] = is_identity ? (i == column ? 1.0f : 0.0f) : element;
  }
  float own_pivot = 1.0f;
#pragma unroll
  for (int p = 0; p < kTile; ++p) {
    float pivot = __shfl_sync(kFullWarp, x[p], p);
    pivot = pivot < pivot_min ? pivot_min : pivot;
    if (column == p) own_pivot = pivot;
    const float over_pivot = -x[p] * __frcp_rn(pivot);
#pragma unroll
    for (int i = p + 1; i < kTile; ++i) {
      x[i] = __fmaf_rn(__shfl_sync(kFullWarp, x[i], p), over_pivot, x[i]);
    }
  }
  const float scale = __frcp_rn(__fsqrt_rn(own_pivot));
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const float element = x[i] * __shfl_sync(kFullWarp, scale, i);
    if (is_identity) block[i * kStride + column] = i >= column ? element : 0.0f;
  }
  __syncwarp();
}

// Lower blocks of a D x D matrix in shared memory, block by block, rows kBlockStride floats apart (24:
// accumulators' accesses are free of bank conflicts).
inline constexpr int kBlockStride = 24;
inline constexpr int kBlockFloats = kTile * kBlockStride;

struct BlockRows {
  float* data;
  __device__ __forceinline__ float* At(int row, int column) const {
    return data + LowerBlock(row, column) * kBlockFloats;
  }
};

// What CholeskyInverse needs: the blocks and, for its current step, a row of blocks in split f16.
template <int kDim>
struct InverseLayout {
  static constexpr int kHalves = 2 * kTile * kBlockStride;  // of one block: high, then low parts
  static constexpr int kMatrixFloats = kLowerBlocks<kDim> * kBlockFloats;
  static constexpr int kFloats = kMatrixFloats + kDim / kTile * kHalves / 2;
};

__device__ __forceinline__ void LoadAccumulator(const float* block, Block& c) {
  ForEachPairOfBlock(0, 0, c, [&](int i, int j, float& first, float& second) {
    const float2 pair = *reinterpret_cast<const float2*>(block + i * kBlockStride + j);
    first = pair.x;
    second = pair.y;
  });
}

__device__ __forceinline__ void StoreAccumulator(float* block, Block& c) {
  ForEachPairOfBlock(0, 0, c, [&](int i, int j, float first, float second) {
    *reinterpret_cast<float2*>(block + i * kBlockStride + j) = make_float2(first, second);
  });
}

__device__ __forceinline__ void StoreSplitHalf(Block& c, __half* to) {
  ForEachPairOfBlock(0, 0, c, [&](int i, int j, float first, float second) {
    uint32_t high;
    uint32_t low;
    SplitHalfPair(first, second, &high, &low);
    *reinterpret_cast<uint32_t*>(to + i * kBlockStride + j) = high;
    *reinterpret_cast<uint32_t*>(to + kTile * kBlockStride + i * kBlockStride + j) = low;
  });
}

__device__ __forceinline__ SplitLeft SplitHalfBlock(const Block& c) {
  SplitLeft left;
  SplitHalfPair(c[0][0], c[0][1], &left.high.r[0], &left.low.r[0]);
  SplitHalfPair(c[0][2], c[0][3], &left.high.r[1], &left.low.r[1]);
  SplitHalfPair(c[1][0], c[1][1], &left.high.r[2], &left.low.r[2]);
  SplitHalfPair(c[1][2], c[1][3], &left.high.r[3], &left.low.r[3]);
  return left;
}

// An accumulator x(k, n) as right operand.
__device__ __forceinline__ SplitRight SplitHalfRight(const Block& c) {
  const SplitLeft x = SplitHalfBlock(c);
  const auto right = [](const Left& y) {
    return Right{{Transposed8x8(y.r[0]), Transposed8x8(y.r[1]), Transposed8x8(y.r[2]),
                  Transposed8x8(y.r[3])}};
  };
  return {right(x.high), right(x.low)};
}

__device__ __forceinline__ SplitLeft LoadSplitLeft(const __half* x) {
  return {LoadLeft(x, kBlockStride, 0, 0), LoadLeft(x + kTile * kBlockStride, kBlockStride, 0, 0)};
}

// As right operand of rows (B = x^T) or of columns (B = x).
template <bool kOfRows>
__device__ __forceinline__ SplitRight LoadSplitRight(const __half* x) {
  const __half* low = x + kTile * kBlockStride;
  if constexpr (kOfRows) {
    return {LoadRightOfRows(x, kBlockStride, 0, 0), LoadRightOfRows(low, kBlockStride, 0, 0)};
  } else {
    return {LoadRightOfColumns(x, kBlockStride, 0, 0), LoadRightOfColumns(low, kBlockStride, 0, 0)};
  }
}

// 2^e with 4^e about 1 / the largest diagonal element, which brings the factor's elements to at most 2
// and makes f16's absolute resolution one relative to the matrix. Every warp finds it for itself.
template <int kDim>
__device__ __forceinline__ float InverseScale(const BlockRows& matrix) {
  float largest = 0.0f;
  for (int i = Lane(); i < kDim; i += 32) {
    largest = fmaxf(largest, matrix.At(i >> 4, i >> 4)[(i & 15) * (kBlockStride + 1)]);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, distance));
  }
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
  return __uint_as_float(static_cast<uint32_t>(127 - (exponent >> 1)) << 23);
}

// Lower blocks: a symmetric positive definite matrix (its lower triangle is read), replaced by the
// inverse of its Cholesky factor; diagonal blocks get zeros above the diagonal. `row` is room for
// kDim / 16 blocks in split f16. Ends with a barrier; the caller has one before it.
//
// Gauss-Jordan in place. Step b: L_ib = M_ib X_bb^T for i > b, X_bj = X_bb X_bj for j < b, both also into
// `row`; then M_ij -= L_ib L_jb^T (j > b), X_ib = -L_ib X_bb, X_ij -= L_ib X_bj (j < b).
template <int kDim, int kWarps>
__device__ __forceinline__ void CholeskyInverse(const BlockRows& matrix, __half* row,
                                                float pivot_min) {
  constexpr int kBlocks = kDim / kTile;
  constexpr int kHalves = InverseLayout<kDim>::kHalves;
  // s M s has the factor s L and its inverse X / s.
  const float scale = InverseScale<kDim>(matrix);
  const float square = scale * scale;
  __syncthreads();
  for (int block = Warp(); block < kLowerBlocks<kDim>; block += kWarps) {
    Block c;
    float* data = matrix.data + block * kBlockFloats;
    LoadAccumulator(data, c);
    ForEachPairOfBlock(0, 0, c, [&](int, int, float& x, float& y) { x *= square, y *= square; });
    StoreAccumulator(data, c);
  }
  __syncthreads();
  for (int b = 0; b < kBlocks; ++b) {
    if (Warp() == b % kWarps) {  // its turn: a scheduler has every kWarps-th warp of each block
      InvertDiagonal<kBlockStride>(matrix.At(b, b), pivot_min * square);
      Block c;
      LoadAccumulator(matrix.At(b, b), c);
      StoreSplitHalf(c, row + b * kHalves);
    }
    __syncthreads();
    for (int task = Warp(); task < kBlocks - 1; task += kWarps) {
      const int i = task < b ? task : task + 1;
      Block x;
      Block c;
      ClearBlock(c);
      if (i < b) {
        LoadAccumulator(matrix.At(b, i), x);
        AddSplitHalfProduct(LoadSplitLeft(row + b * kHalves), SplitHalfRight(x), c);
        StoreAccumulator(matrix.At(b, i), c);
      } else {
        LoadAccumulator(matrix.At(i, b), x);
        AddSplitHalfProduct(SplitHalfBlock(x), LoadSplitRight<true>(row + b * kHalves), c);
      }
      StoreSplitHalf(c, row + i * kHalves);
    }
    __syncthreads();
    constexpr int kAll = kLowerBlocks<kDim>;
    for (int task = Warp() + (b + 1) * (b + 2) / 2; task < kAll; task += kWarps) {
      int i;
      int j;
      BlockOf(task, &i, &j);
      Block c;
      Block product;
      if (j == b) {
        ClearBlock(c);
      } else {
        LoadAccumulator(matrix.At(i, j), c);
      }
      ClearBlock(product);
      const SplitLeft panel = LoadSplitLeft(row + i * kHalves);
      const __half* other = row + j * kHalves;
      AddSplitHalfProduct(panel, j > b ? LoadSplitRight<true>(other) : LoadSplitRight<false>(other),
                          product);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) c[n][e] -= product[n][e];
      }
      StoreAccumulator(matrix.At(i, j), c);
    }
    __syncthreads();
  }
  for (int block = Warp(); block < kLowerBlocks<kDim>; block += kWarps) {
    Block c;
    float* data = matrix.data + block * kBlockFloats;
    LoadAccumulator(data, c);
    ForEachPairOfBlock(0, 0, c, [&](int, int, float& x, float& y) { x *= scale, y *= scale; });
    StoreAccumulator(data, c);
  }
  __syncthreads();
}

// One warp: a diagonal block b becomes (I + b)^-1; its strictly lower triangle is read. By columns.
template <int kStride>
__device__ __forceinline__ void InvertUnitDiagonal(float* block) {
  const int column = Lane() & 15;
  float x[kTile];
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int p = 0; p < i; p += 4) {
      const float4 row = *reinterpret_cast<const float4*>(block + i * kStride + p);
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
    for (int i = 0; i < kTile; ++i) block[i * kStride + column] = x[i];
  }
}

// (I + b)^-1 for a strictly lower 64 x 64 matrix b in lower blocks; the result lies in swapped
// blocks (SwappedBlockRows). Ends with a barrier; the caller has one before it.
template <int kStride, int kWarps>
__device__ __forceinline__ void UnitLowerInverse(float* matrix) {
  constexpr int kBlocks = kTokens / kTile;
  const auto at = [&](int row, int column) {
    return matrix + row * kTile * kStride + column * kTile;
  };
  if (Warp() < kBlocks) InvertUnitDiagonal<kStride>(at(Warp(), Warp()));
  __syncthreads();
  // X_ij = -X_ii (sum over j <= p < i of B_ip X_pj), diagonal by diagonal.
  for (int distance = 1; distance < kBlocks; ++distance) {
    if (Warp() < kBlocks - distance) {
      const int j = Warp();
      const int i = j + distance;
      float* result = at(j, i);
      float c[1][2][4];
      Clear(c);
      WarpProduct<Split, true>(Rows<kStride>{matrix}, kTile * i,
                               Transpose(SwappedBlockRows<kStride>{matrix}), kTile * j, kTile * j,
                               kTile * i, c);
      Store(c, 0, 0, kStride, result);
      __syncwarp();
      Clear(c);
      WarpProduct<SplitMinus, true>(Rows<kStride>{at(i, i)}, 0, Transpose(Rows<kStride>{result}), 0,
                                    0, kTile, c);
      __syncwarp();
      Store(c, 0, 0, kStride, result);
    }
    __syncthreads();
  }
}

}  // namespace lethe::vla_chunk

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_INVERSE_CUDA_CUH_
