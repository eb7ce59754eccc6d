// Matrix products of 16 x 16 blocks in f16 operands with sums in f32. For VlaChunk's kernels.
//
// As accumulator (Block) lane 4 g + t holds rows g and g + 8, columns 2t, 2t + 1, 2t + 8 and 2t + 9; the
// same lanes hold the same elements of a left operand (Left), so an accumulator becomes one without
// leaving its lane. A right operand B(k, n) (Right) holds k = 2t, 2t + 1, 2t + 8, 2t + 9 and n = g, g + 8.
//
// Split numbers are x = high + low, both f16: 22 bits down to 2^-25, products of two in three terms.
#ifndef LETHE_KERNELS_VLA_VLA_CHUNK_HALF_CUDA_CUH_
#define LETHE_KERNELS_VLA_VLA_CHUNK_HALF_CUDA_CUH_

#include <type_traits>

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
template <bool kSplit>
using LeftTerms = std::conditional_t<kSplit, SplitLeft, Left>;
template <bool kSplit>
using RightTerms = std::conditional_t<kSplit, SplitRight, Right>;

__device__ __forceinline__ void ClearBlock(Block& c) {
#pragma unroll
  for (int e = 0; e < 8; ++e) c[e / 4][e % 4] = 0.0f;
}

__device__ __forceinline__ void MultiplyBlock(float by, Block& c) {
#pragma unroll
  for (int e = 0; e < 8; ++e) c[e / 4][e % 4] *= by;
}

// `row`: the lane's 16 bytes in shared memory.
template <bool kTransposed>
__device__ __forceinline__ void LoadMatrix(uint32_t row, uint32_t (&x)[4]) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(row)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(row)
                 : "memory");
  }
}

template <bool kTransposed>
__device__ __forceinline__ void LoadMatrix(const void* row, uint32_t (&x)[4]) {
  LoadMatrix<kTransposed>(SharedAddress(row), x);
}

__device__ __forceinline__ uint32_t Transposed8x8(uint32_t tile) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(tile));
  return transposed;
}

__device__ __forceinline__ uint32_t PackHalf(float first, float second) {
  uint32_t bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  return bits;
}

__device__ __forceinline__ float2 UnpackHalf(uint32_t bits) {
  return __half22float2(reinterpret_cast<const __half2&>(bits));
}

__device__ __forceinline__ void SplitPair(float first, float second, uint32_t* high,
                                          uint32_t* low) {
  *high = PackHalf(first, second);
  const float2 rounded = UnpackHalf(*high);
  *low = PackHalf(first - rounded.x, second - rounded.y);
}

__device__ __forceinline__ Left HalfBlock(const Block& c) {
  return {{PackHalf(c[0][0], c[0][1]), PackHalf(c[0][2], c[0][3]), PackHalf(c[1][0], c[1][1]),
           PackHalf(c[1][2], c[1][3])}};
}

// An accumulator as left operand.
template <bool kSplit>
__device__ __forceinline__ LeftTerms<kSplit> LeftOf(const Block& c) {
  if constexpr (kSplit) {
    SplitLeft left;
    SplitPair(c[0][0], c[0][1], &left.high.r[0], &left.low.r[0]);
    SplitPair(c[0][2], c[0][3], &left.high.r[1], &left.low.r[1]);
    SplitPair(c[1][0], c[1][1], &left.high.r[2], &left.low.r[2]);
    SplitPair(c[1][2], c[1][3], &left.high.r[3], &left.low.r[3]);
    return left;
  } else {
    return HalfBlock(c);
  }
}

// The right operand B(k, n) of a left operand's elements (k, n).
__device__ __forceinline__ Right Transposed(const Left& x) {
  return {
      {Transposed8x8(x.r[0]), Transposed8x8(x.r[1]), Transposed8x8(x.r[2]), Transposed8x8(x.r[3])}};
}

// An accumulator x(k, n) as right operand.
template <bool kSplit>
__device__ __forceinline__ RightTerms<kSplit> RightOf(const Block& c) {
  if constexpr (kSplit) {
    const SplitLeft x = LeftOf<true>(c);
    return {Transposed(x.high), Transposed(x.low)};
  } else {
    return Transposed(HalfBlock(c));
  }
}

__device__ __forceinline__ Left Minus(const Left& x) {
  constexpr uint32_t kSigns = 0x80008000u;
  return {{x.r[0] ^ kSigns, x.r[1] ^ kSigns, x.r[2] ^ kSigns, x.r[3] ^ kSigns}};
}

__device__ __forceinline__ SplitLeft Minus(const SplitLeft& x) {
  return {Minus(x.high), Minus(x.low)};
}

__device__ __forceinline__ void MmaHalf(const Left& a, uint32_t b0, uint32_t b1, float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b0), "r"(b1));
}

// c += a b.
__device__ __forceinline__ void AddProduct(const Left& a, const Right& b, Block& c) {
#pragma unroll
  for (int n = 0; n < 2; ++n) MmaHalf(a, b.r[2 * n], b.r[2 * n + 1], c[n]);
}

// In three terms, the small ones first.
__device__ __forceinline__ void AddProduct(const SplitLeft& a, const SplitRight& b, Block& c) {
  AddProduct(a.low, b.high, c);
  AddProduct(a.high, b.low, c);
  AddProduct(a.high, b.high, c);
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

// A row-major matrix of f16 in shared memory, split or not.
template <bool kSplit, int kStride>
struct HalfMatrix {
  __half* high;
  __half* low;  // not used unless split

  // Block (row, k) as left operand A(row, k).
  __device__ __forceinline__ LeftTerms<kSplit> LeftAt(int row, int k) const {
    return Load<LeftTerms<kSplit>, false>((row + (Lane() & 15)) * kStride + k + (Lane() >> 4) * 8);
  }
  // Of the transposed matrix: A(row, k) = x(k, row).
  __device__ __forceinline__ LeftTerms<kSplit> LeftOfColumns(int row, int k) const {
    return Load<LeftTerms<kSplit>, true>((k + (Lane() >> 4) * 8 + (Lane() & 7)) * kStride + row +
                                         (Lane() >> 3 & 1) * 8);
  }
  // As right operand, from rows n: B(k, n) = x(n, k).
  __device__ __forceinline__ RightTerms<kSplit> OfRows(int n, int k) const {
    return Load<RightTerms<kSplit>, false>((n + (Lane() & 7) + (Lane() >> 4) * 8) * kStride + k +
                                           (Lane() >> 3 & 1) * 8);
  }
  // From rows k: B(k, n) = x(k, n).
  __device__ __forceinline__ RightTerms<kSplit> OfColumns(int k, int n) const {
    return Load<RightTerms<kSplit>, true>((k + (Lane() & 15)) * kStride + n + (Lane() >> 4) * 8);
  }
  __device__ __forceinline__ void StorePair(int row, int column, float first, float second) const {
    const int at = row * kStride + column;
    if constexpr (kSplit) {
      SplitPair(first, second, reinterpret_cast<uint32_t*>(high + at),
                reinterpret_cast<uint32_t*>(low + at));
    } else {
      *reinterpret_cast<uint32_t*>(high + at) = PackHalf(first, second);
    }
  }
  // Columns column … column + 3.
  __device__ __forceinline__ void StoreFour(int row, int column, const float4& x) const {
    const int at = row * kStride + column;
    uint2 pairs;
    if constexpr (kSplit) {
      uint2 low_pairs;
      SplitPair(x.x, x.y, &pairs.x, &low_pairs.x);
      SplitPair(x.z, x.w, &pairs.y, &low_pairs.y);
      *reinterpret_cast<uint2*>(low + at) = low_pairs;
    } else {
      pairs = make_uint2(PackHalf(x.x, x.y), PackHalf(x.z, x.w));
    }
    *reinterpret_cast<uint2*>(high + at) = pairs;
  }
  __device__ __forceinline__ void Store(int row, int column, Block& c) const {
    ForEachPairOfBlock(row, column, c,
                       [&](int i, int j, float x, float y) { StorePair(i, j, x, y); });
  }
  // As accumulator; of split numbers the high parts.
  __device__ __forceinline__ void LoadBlock(int row, int column, Block& c) const {
    ForEachPairOfBlock(row, column, c, [&](int i, int j, float& x, float& y) {
      const float2 pair = UnpackHalf(*reinterpret_cast<const uint32_t*>(high + i * kStride + j));
      x = pair.x;
      y = pair.y;
    });
  }

 private:
  template <typename Operand, bool kTransposed>
  __device__ __forceinline__ Operand Load(int at) const {
    Operand x;
    if constexpr (kSplit) {
      LoadMatrix<kTransposed>(high + at, x.high.r);
      LoadMatrix<kTransposed>(low + at, x.low.r);
    } else {
      LoadMatrix<kTransposed>(high + at, x.r);
    }
    return x;
  }
};

// Blocks of f16 one after the other, each as four 8 x 8 tiles [row half][column half] of 128 bytes, which
// ldmatrix reads without bank conflicts; split ones have their low parts' tiles behind.
template <bool kSplit>
struct TileBlocks {
  static constexpr int kWords = kSplit ? 256 : 128;  // of a block
  uint32_t* data;

  __device__ __forceinline__ void Store(int block, const LeftTerms<kSplit>& x) const {
    uint32_t* to = data + block * kWords + Lane();
    if constexpr (kSplit) {
      StoreTiles(x.high, to);
      StoreTiles(x.low, to + 128);
    } else {
      StoreTiles(x, to);
    }
  }
  __device__ __forceinline__ void Store(int block, const Block& c) const {
    Store(block, LeftOf<kSplit>(c));
  }
  __device__ __forceinline__ LeftTerms<kSplit> LeftAt(int block) const {
    return Load<LeftTerms<kSplit>, false>(block, CrossedTile());
  }
  // A(row, k) = x(k, row).
  __device__ __forceinline__ LeftTerms<kSplit> LeftOfColumns(int block) const {
    return Load<LeftTerms<kSplit>, true>(block, Lane() >> 3);
  }
  // B(k, n) = x(n, k).
  __device__ __forceinline__ RightTerms<kSplit> OfRows(int block) const {
    return Load<RightTerms<kSplit>, false>(block, Lane() >> 3);
  }
  // B(k, n) = x(k, n).
  __device__ __forceinline__ RightTerms<kSplit> OfColumns(int block) const {
    return Load<RightTerms<kSplit>, true>(block, CrossedTile());
  }

 private:
  static __device__ __forceinline__ int CrossedTile() {
    return (Lane() >> 3 & 1) * 2 + (Lane() >> 4);
  }
  static __device__ __forceinline__ void StoreTiles(const Left& x, uint32_t* to) {
    to[0] = x.r[0];
    to[64] = x.r[1];
    to[32] = x.r[2];
    to[96] = x.r[3];
  }
  template <typename Operand, bool kTransposed>
  __device__ __forceinline__ Operand Load(int block, int tile) const {
    const uint32_t* row = data + block * kWords + tile * 32 + (Lane() & 7) * 4;
    Operand x;
    if constexpr (kSplit) {
      LoadMatrix<kTransposed>(row, x.high.r);
      LoadMatrix<kTransposed>(row + 128, x.low.r);
    } else {
      LoadMatrix<kTransposed>(row, x.r);
    }
    return x;
  }
};

// A power of 2 and its inverse: x * to has its largest element in [2^kTop, 2^(kTop + 1)).
struct Scale {
  float to;
  float from;
};

// `largest`: the greatest of the elements' bits without their sign. Held in 2^-100 … 2^100; NaN and
// infinity pass.
template <int kTop>
__device__ __forceinline__ Scale ScaleOf(uint32_t largest) {
  const int exponent = min(max(static_cast<int>(largest >> 23) - 127 - kTop, -100), 100);
  return {__uint_as_float(static_cast<uint32_t>(127 - exponent) << 23),
          __uint_as_float(static_cast<uint32_t>(127 + exponent) << 23)};
}

// Of a power of 2 in 2^-100 … 2^100.
__device__ __forceinline__ float Reciprocal2(float power) {
  return __uint_as_float((254u << 23) - __float_as_uint(power));
}

__device__ __forceinline__ uint32_t Magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

__device__ __forceinline__ uint32_t LargestOfWarp(uint32_t x) {
  return __reduce_max_sync(kFullWarp, x);
}

__device__ __forceinline__ uint32_t LargestOf(const Block& c, uint32_t largest = 0) {
#pragma unroll
  for (int e = 0; e < 8; ++e) largest = max(largest, Magnitude(c[e / 4][e % 4]));
  return largest;
}

}  // namespace lethe::vla_chunk

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_HALF_CUDA_CUH_
