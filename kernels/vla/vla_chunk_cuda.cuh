// Warp-level matrix products of f32 in TF32, and where their operands lie. For VlaChunk's kernels.
//
// mma.sync m16n8k8 gives lane 4 g + t of a warp: A (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4); B
// (t, g), (t + 4, g); C (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). The order of k inside a
// group of 8 is ours to choose, as long as A and B agree: in the paired order lane t holds k = 2t and
// 2t + 1, which lie side by side in operands that are contiguous along k.
//
// Row strides of D + 8 floats (8 mod 32 banks) make paired reads along a row and unpaired reads along
// a column free of bank conflicts.
#ifndef LETHE_KERNELS_VLA_VLA_CHUNK_CUDA_CUH_
#define LETHE_KERNELS_VLA_VLA_CHUNK_CUDA_CUH_

#include <cstdint>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace lethe::vla_chunk {

inline constexpr int kTokens = 64;
inline constexpr int kTile = 16;
inline constexpr unsigned kFullWarp = 0xffffffffu;

// Lower blocks of a D x D matrix, and their elements.
template <int kDim>
inline constexpr int kLowerBlocks = kDim / kTile*(kDim / kTile + 1) / 2;
template <int kDim>
inline constexpr int kPacked = kLowerBlocks<kDim>* kTile* kTile;

__device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x) & 31; }
__device__ __forceinline__ int Warp() { return static_cast<int>(threadIdx.x) >> 5; }

// Index of block (row, column), row >= column, among packed lower blocks.
__device__ __forceinline__ int LowerBlock(int row, int column) {
  return row * (row + 1) / 2 + column;
}

// The inverse of LowerBlock.
__device__ __forceinline__ void BlockOf(int index, int* row, int* column) {
  int r = 0;
  while ((r + 1) * (r + 2) / 2 <= index) ++r;
  *row = r;
  *column = index - r * (r + 1) / 2;
}

// Where element (row, column) of an operand is. Pair: (row, column) and (row, column + 1).
template <int kStride>
struct Rows {
  const float* data;
  __device__ __forceinline__ float At(int row, int column) const {
    return data[row * kStride + column];
  }
  __device__ __forceinline__ float2 Pair(int row, int column) const {
    return *reinterpret_cast<const float2*>(data + row * kStride + column);
  }
};

template <int kStride>
struct HalfRows {
  const __half* data;
  __device__ __forceinline__ float At(int row, int column) const {
    return __half2float(data[row * kStride + column]);
  }
  __device__ __forceinline__ float2 Pair(int row, int column) const {
    return __half22float2(*reinterpret_cast<const __half2*>(data + row * kStride + column));
  }
};

// Blocks of 16 x 16 lie at their transposed place, each in itself as usual.
template <int kStride>
struct SwappedBlockRows {
  const float* data;
  __device__ __forceinline__ const float* Address(int row, int column) const {
    return data + ((column & ~15) + (row & 15)) * kStride + (row & ~15) + (column & 15);
  }
  __device__ __forceinline__ float At(int row, int column) const { return *Address(row, column); }
  __device__ __forceinline__ float2 Pair(int row, int column) const {
    return *reinterpret_cast<const float2*>(Address(row, column));
  }
};

template <typename Operand>
struct TransposedOperand {
  Operand operand;
  __device__ __forceinline__ float At(int row, int column) const { return operand.At(column, row); }
  __device__ __forceinline__ float2 Pair(int row, int column) const {
    return make_float2(operand.At(column, row), operand.At(column + 1, row));
  }
};

template <typename Operand>
__device__ __forceinline__ TransposedOperand<Operand> Transpose(Operand operand) {
  return {operand};
}

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes, asynchronously.
__device__ __forceinline__ void CopyAsync(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(SharedAddress(to)), "l"(from));
}

__device__ __forceinline__ void CommitCopies() { asm volatile("cp.async.commit_group;"); }

template <int kLeft>
__device__ __forceinline__ void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

__device__ __forceinline__ uint32_t ToTf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

__device__ __forceinline__ float RoundToTf32(float x) { return __uint_as_float(ToTf32(x)); }

__device__ __forceinline__ void Mma(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A fragment as one or two TF32 numbers an element. One: x has to be a TF32 number.
template <int kRegisters, bool kSplit>
struct Fragment {
  uint32_t high[kRegisters];
  uint32_t low[kSplit ? kRegisters : 1];

  __device__ __forceinline__ void Set(int index, float x) {
    high[index] = kSplit ? ToTf32(x) : __float_as_uint(x);
    // The matrix unit ignores the bits below TF32's.
    if constexpr (kSplit) low[index] = __float_as_uint(x - __uint_as_float(high[index]));
  }
};

template <bool kSplit>
__device__ __forceinline__ void Mma(const Fragment<4, kSplit>& a, const Fragment<2, kSplit>& b,
                                    float (&c)[4]) {
  if constexpr (kSplit) {
    Mma(a.low, b.high, c);
    Mma(a.high, b.low, c);
  }
  Mma(a.high, b.high, c);
}

// How the products of a call are made.
struct Plain {  // TF32, of operands that are TF32 numbers
  static constexpr bool kSplit = false;
  static constexpr float kSign = 1.0f;
};
struct Split {  // 3xTF32
  static constexpr bool kSplit = true;
  static constexpr float kSign = 1.0f;
};
struct SplitMinus {
  static constexpr bool kSplit = true;
  static constexpr float kSign = -1.0f;
};

// c[m][n] += sum over k in [k_begin, k_end) of A(16 (row_tile + m) + i, k) B(column + 8 n + j, k),
// k_begin and k_end multiples of 8. B is given by its transpose: B(n, k). kPaired: A and B are
// contiguous along k, or A is and B's conflicts cost less than A's.
template <typename Mode, bool kPaired, int kRowTiles, int kColumnTiles, typename A, typename B>
__device__ __forceinline__ void WarpProduct(const A& a, int row, const B& b, int column,
                                            int k_begin, int k_end,
                                            float (&c)[kRowTiles][kColumnTiles][4]) {
  const int g = Lane() >> 2;
  const int t = Lane() & 3;
  constexpr float kSign = Mode::kSign;
#pragma unroll 2
  for (int k = k_begin; k < k_end; k += 8) {
    Fragment<2, Mode::kSplit> fb[kColumnTiles];
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const int j = column + 8 * n + g;
      if constexpr (kPaired) {
        const float2 pair = b.Pair(j, k + 2 * t);
        fb[n].Set(0, pair.x);
        fb[n].Set(1, pair.y);
      } else {
        fb[n].Set(0, b.At(j, k + t));
        fb[n].Set(1, b.At(j, k + t + 4));
      }
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const int i = row + 16 * m + g;
      Fragment<4, Mode::kSplit> fa;
      if constexpr (kPaired) {
        const float2 upper = a.Pair(i, k + 2 * t);
        const float2 lower = a.Pair(i + 8, k + 2 * t);
        fa.Set(0, kSign * upper.x);
        fa.Set(1, kSign * lower.x);
        fa.Set(2, kSign * upper.y);
        fa.Set(3, kSign * lower.y);
      } else {
        fa.Set(0, kSign * a.At(i, k + t));
        fa.Set(1, kSign * a.At(i + 8, k + t));
        fa.Set(2, kSign * a.At(i, k + t + 4));
        fa.Set(3, kSign * a.At(i + 8, k + t + 4));
      }
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) Mma<Mode::kSplit>(fa, fb[n], c[m][n]);
    }
  }
}

template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void Clear(float (&c)[kRowTiles][kColumnTiles][4]) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) c[m][n][e] = 0.0f;
    }
  }
}

// Calls f(row, column, first, second) for every pair of neighbours of the tiles at (row, column).
template <int kRowTiles, int kColumnTiles, typename F>
__device__ __forceinline__ void ForEachPair(int row, int column,
                                            float (&c)[kRowTiles][kColumnTiles][4], F f) {
  const int g = Lane() >> 2;
  const int t = Lane() & 3;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      f(row + 16 * m + g, column + 8 * n + 2 * t, c[m][n][0], c[m][n][1]);
      f(row + 16 * m + g + 8, column + 8 * n + 2 * t, c[m][n][2], c[m][n][3]);
    }
  }
}

template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void Store(float (&c)[kRowTiles][kColumnTiles][4], int row, int column,
                                      int64_t stride, float* data) {
  ForEachPair(row, column, c, [&](int i, int j, float& first, float& second) {
    *reinterpret_cast<float2*>(data + i * stride + j) = make_float2(first, second);
  });
}

template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void Load(const float* data, int row, int column, int64_t stride,
                                     float (&c)[kRowTiles][kColumnTiles][4]) {
  ForEachPair(row, column, c, [&](int i, int j, float& first, float& second) {
    const float2 pair = *reinterpret_cast<const float2*>(data + i * stride + j);
    first = pair.x;
    second = pair.y;
  });
}

}  // namespace lethe::vla_chunk

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_CUDA_CUH_
