// Matrix products in 16-bit operands, flash-attention style: fragments stay in registers from one
// product to the next. For VlaChunk's kernels.
//
// Blocks are 16 x 16. As accumulator (Block) lane 4 g + t holds rows g and g + 8, columns 2t, 2t + 1,
// 2t + 8 and 2t + 9; the same lanes hold the same elements of a left operand (Left), so an accumulator
// becomes one without leaving its lane. A right operand B(k, n) (Right) holds k = 2t, 2t + 1, 2t + 8,
// 2t + 9 and n = g, g + 8.
//
// Split numbers are x = high + low, both bf16: products of two in three terms have 16 bits (3xBF16).
#ifndef LETHE_KERNELS_VLA_VLA_CHUNK_HALF_CUDA_CUH_
#define LETHE_KERNELS_VLA_VLA_CHUNK_HALF_CUDA_CUH_

#include <cuda_bf16.h>

#include "kernels/vla/vla_chunk_cuda.cuh"

namespace lethe::vla_chunk {

// One accumulator block: [column half][2 (row half) + column parity].
using Block = float[2][4];

struct Left {
  uint32_t r[4];  // (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8) and their neighbours
};
struct Right {
  uint32_t r[4];  // (2t, g), (2t + 8, g), (2t, g + 8), (2t + 8, g + 8) and their neighbours
};
struct SplitLeft {
  Left high, low;
};
struct SplitRight {
  Right high, low;
};

__device__ __forceinline__ void ClearBlock(Block& c) {
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) c[n][e] = 0.0f;
  }
}

template <bool kTransposed>
__device__ __forceinline__ void LoadMatrix(const void* row, uint32_t (&x)[4]) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(SharedAddress(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(SharedAddress(row))
                 : "memory");
  }
}

// Block (row, column) of a row-major matrix of 16-bit numbers as a left operand A(row, k).
template <typename T>
__device__ __forceinline__ Left LoadLeft(const T* x, int stride, int row, int k) {
  Left left;
  LoadMatrix<false>(x + (row + (Lane() & 15)) * stride + k + (Lane() >> 4) * 8, left.r);
  return left;
}

// Of the transposed matrix: A(row, k) = x(k, row).
template <typename T>
__device__ __forceinline__ Left LoadLeftOfColumns(const T* x, int stride, int row, int k) {
  Left left;
  LoadMatrix<true>(
      x + (k + (Lane() >> 4) * 8 + (Lane() & 7)) * stride + row + (Lane() >> 3 & 1) * 8, left.r);
  return left;
}

// As a right operand, from rows n: B(k, n) = x(n, k).
template <typename T>
__device__ __forceinline__ Right LoadRightOfRows(const T* x, int stride, int n, int k) {
  Right right;
  LoadMatrix<false>(x + (n + (Lane() & 7) + (Lane() >> 4) * 8) * stride + k + (Lane() >> 3 & 1) * 8,
                    right.r);
  return right;
}

// From rows k: B(k, n) = x(k, n).
template <typename T>
__device__ __forceinline__ Right LoadRightOfColumns(const T* x, int stride, int k, int n) {
  Right right;
  LoadMatrix<true>(x + (k + (Lane() & 15)) * stride + n + (Lane() >> 4) * 8, right.r);
  return right;
}

__device__ __forceinline__ uint32_t Transposed8x8(uint32_t tile) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(tile));
  return transposed;
}

// The right operand of x^T for that of x.
__device__ __forceinline__ Right Transposed(const Right& x) {
  return {
      {Transposed8x8(x.r[0]), Transposed8x8(x.r[2]), Transposed8x8(x.r[1]), Transposed8x8(x.r[3])}};
}

__device__ __forceinline__ uint32_t PackBf16(float first, float second) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  return bits;
}

__device__ __forceinline__ uint32_t PackHalf(float first, float second) {
  uint32_t bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  return bits;
}

__device__ __forceinline__ void SplitPair(float first, float second, uint32_t* high,
                                          uint32_t* low) {
  *high = PackBf16(first, second);
  *low =
      PackBf16(first - __uint_as_float(*high << 16), second - __uint_as_float(*high & 0xffff0000u));
}

// Split f16 numbers, 22 bits; absolute resolution 2^-25.
__device__ __forceinline__ void SplitHalfPair(float first, float second, uint32_t* high,
                                              uint32_t* low) {
  *high = PackHalf(first, second);
  const float2 rounded = __half22float2(reinterpret_cast<const __half2&>(*high));
  *low = PackHalf(first - rounded.x, second - rounded.y);
}

__device__ __forceinline__ SplitLeft SplitBlock(const Block& c) {
  SplitLeft left;
  SplitPair(c[0][0], c[0][1], &left.high.r[0], &left.low.r[0]);
  SplitPair(c[0][2], c[0][3], &left.high.r[1], &left.low.r[1]);
  SplitPair(c[1][0], c[1][1], &left.high.r[2], &left.low.r[2]);
  SplitPair(c[1][2], c[1][3], &left.high.r[3], &left.low.r[3]);
  return left;
}

__device__ __forceinline__ Left HalfBlock(const Block& c) {
  return {{PackHalf(c[0][0], c[0][1]), PackHalf(c[0][2], c[0][3]), PackHalf(c[1][0], c[1][1]),
           PackHalf(c[1][2], c[1][3])}};
}

__device__ __forceinline__ void MmaBf16(const Left& a, uint32_t b0, uint32_t b1, float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void MmaHalf(const Left& a, uint32_t b0, uint32_t b1, float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
}

// c += a b and d += a e in three terms of split bf16, the small ones first, in turns.
__device__ __forceinline__ void AddProducts(const SplitLeft& a, const SplitRight& b,
                                            const SplitRight& e, Block& c, Block& d) {
  const auto add = [&](const Left& left, const Right& right, Block& sum) {
#pragma unroll
    for (int n = 0; n < 2; ++n) MmaBf16(left, right.r[2 * n], right.r[2 * n + 1], sum[n]);
  };
  add(a.low, b.high, c);
  add(a.low, e.high, d);
  add(a.high, b.low, c);
  add(a.high, e.low, d);
  add(a.high, b.high, c);
  add(a.high, e.high, d);
}

// c += a b, operands in f16.
__device__ __forceinline__ void AddHalfProduct(const Left& a, const Right& b, Block& c) {
#pragma unroll
  for (int n = 0; n < 2; ++n) MmaHalf(a, b.r[2 * n], b.r[2 * n + 1], c[n]);
}

// c[i] += a b[i] in three terms of split f16, the small ones first; products of several blocks take
// turns, because each waits for its own last one.
template <int kCount>
__device__ __forceinline__ void AddSplitHalfProducts(const SplitLeft& a,
                                                     const SplitRight (&b)[kCount],
                                                     Block* const (&c)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) AddHalfProduct(a.low, b[i].high, *c[i]);
#pragma unroll
  for (int i = 0; i < kCount; ++i) AddHalfProduct(a.high, b[i].low, *c[i]);
#pragma unroll
  for (int i = 0; i < kCount; ++i) AddHalfProduct(a.high, b[i].high, *c[i]);
}

__device__ __forceinline__ void AddSplitHalfProduct(const SplitLeft& a, const SplitRight& b,
                                                    Block& c) {
  const SplitRight right[1] = {b};
  Block* const sum[1] = {&c};
  AddSplitHalfProducts<1>(a, right, sum);
}

// c[n] += a b(n) for n in [0, kEnd) and, where is_all is false, n < kSome only; kSome even.
template <int kSome, int kEnd, typename RightAt>
__device__ __forceinline__ void AddSplitHalfRow(const SplitLeft& a, RightAt right_at, bool is_all,
                                                Block* c) {
#pragma unroll
  for (int n = 0; n < kEnd; n += 2) {
    if (n >= kSome && !is_all) continue;
    if (n + 1 < kEnd) {
      const SplitRight b[2] = {right_at(n), right_at(n + 1)};
      Block* const sums[2] = {c + n, c + n + 1};
      AddSplitHalfProducts<2>(a, b, sums);
    } else {
      AddSplitHalfProduct(a, right_at(n), c[n]);
    }
  }
}

// Calls f(row, column, first, second) for each pair of neighbours of a block at (row, column).
template <typename F>
__device__ __forceinline__ void ForEachPairOfBlock(int row, int column, Block& c, F f) {
  const int g = Lane() >> 2;
  const int t = Lane() & 3;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    f(row + g, column + 8 * n + 2 * t, c[n][0], c[n][1]);
    f(row + g + 8, column + 8 * n + 2 * t, c[n][2], c[n][3]);
  }
}

// A row-major matrix of split numbers in shared memory.
template <int kRows, int kStride>
struct SplitMatrix {
  __nv_bfloat16* high;

  __device__ __forceinline__ __nv_bfloat16* Low() const { return high + kRows * kStride; }
  __device__ __forceinline__ void Store(int row, int column, Block& c) const {
    ForEachPairOfBlock(row, column, c, [&](int i, int j, float first, float second) {
      uint32_t h;
      uint32_t l;
      SplitPair(first, second, &h, &l);
      *reinterpret_cast<uint32_t*>(high + i * kStride + j) = h;
      *reinterpret_cast<uint32_t*>(Low() + i * kStride + j) = l;
    });
  }
  // In split f16.
  __device__ __forceinline__ void StoreSplitHalf(int row, int column, Block& c) const {
    ForEachPairOfBlock(row, column, c, [&](int i, int j, float first, float second) {
      uint32_t h;
      uint32_t l;
      SplitHalfPair(first, second, &h, &l);
      *reinterpret_cast<uint32_t*>(high + i * kStride + j) = h;
      *reinterpret_cast<uint32_t*>(Low() + i * kStride + j) = l;
    });
  }
  __device__ __forceinline__ SplitLeft LeftAt(int row, int k) const {
    return {LoadLeft(high, kStride, row, k), LoadLeft(Low(), kStride, row, k)};
  }
  __device__ __forceinline__ SplitRight OfRows(int n, int k) const {
    return {LoadRightOfRows(high, kStride, n, k), LoadRightOfRows(Low(), kStride, n, k)};
  }
  __device__ __forceinline__ SplitRight OfColumns(int k, int n) const {
    return {LoadRightOfColumns(high, kStride, k, n), LoadRightOfColumns(Low(), kStride, k, n)};
  }
};

}  // namespace lethe::vla_chunk

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_HALF_CUDA_CUH_
