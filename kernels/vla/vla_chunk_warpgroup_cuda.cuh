// Warpgroup products (wgmma, sm_90a) of 64 x 16 by 16 x 64 in f16 with sums in f32, and matrices in shared
// memory as they want them. For VlaChunk's kernels.
//
// A warpgroup is a block of 4 warps; warp w has rows 16 w … of left operands and sums, in the same lanes as
// a warp has them in products of 16 x 16 (vla_chunk_half_cuda.cuh).
#ifndef LETHE_KERNELS_VLA_VLA_CHUNK_WARPGROUP_CUDA_CUH_
#define LETHE_KERNELS_VLA_VLA_CHUNK_WARPGROUP_CUDA_CUH_

#include "kernels/vla/vla_chunk_half_cuda.cuh"

namespace lethe::vla_chunk {

// 64 columns of a warp's 16 rows are four blocks.
inline constexpr int kPanelColumns = 64;
inline constexpr int kPanelBlocks = kPanelColumns / kTile;

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Stores of this thread to shared memory can be operands once a barrier has been passed.
__device__ __forceinline__ void ShowStoresToTensorCores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void EndProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// The compiler may not move what makes or uses these registers across the products' begin and end.
template <int kBlocks>
__device__ __forceinline__ void Hold(Block (&c)[kBlocks]) {
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
    for (int e = 0; e < 8; ++e) asm volatile("" : "+f"(c[n][e / 4][e % 4])::"memory");
  }
}
template <int kSteps>
__device__ __forceinline__ void Hold(Left (&a)[kSteps]) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+r"(a[k].r[e])::"memory");
  }
}

// Four blocks c += a b, or where `adds` is false c = a b; b as Panels describes it, of rows or of columns.
template <bool kOfColumns>
__device__ __forceinline__ void Wgmma(const Left& a, uint64_t b, bool adds, Block* c) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
      : "+f"(c[0][0][0]), "+f"(c[0][0][1]), "+f"(c[0][0][2]), "+f"(c[0][0][3]), "+f"(c[0][1][0]),
        "+f"(c[0][1][1]), "+f"(c[0][1][2]), "+f"(c[0][1][3]), "+f"(c[1][0][0]), "+f"(c[1][0][1]),
        "+f"(c[1][0][2]), "+f"(c[1][0][3]), "+f"(c[1][1][0]), "+f"(c[1][1][1]), "+f"(c[1][1][2]),
        "+f"(c[1][1][3]), "+f"(c[2][0][0]), "+f"(c[2][0][1]), "+f"(c[2][0][2]), "+f"(c[2][0][3]),
        "+f"(c[2][1][0]), "+f"(c[2][1][1]), "+f"(c[2][1][2]), "+f"(c[2][1][3]), "+f"(c[3][0][0]),
        "+f"(c[3][0][1]), "+f"(c[3][0][2]), "+f"(c[3][0][3]), "+f"(c[3][1][0]), "+f"(c[3][1][1]),
        "+f"(c[3][1][2]), "+f"(c[3][1][3])
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "l"(b), "r"(adds ? 1 : 0),
        "n"(kOfColumns ? 1 : 0));
}

// A matrix of f16 with kRows rows in shared memory, in panels of 64 columns: a panel's row is 128 bytes,
// whose eight pieces of 16 bytes change places with the row's number modulo 8 (128-byte swizzle, PTX ISA
// 9.7.15.5.1), so that neither rows nor columns of pieces share banks. Aligned to 1024 bytes.
template <int kRows>
struct Panels {
  static constexpr int Bytes(int columns) { return kRows * columns * 2; }

  char* data;

  // Of a row, the piece that holds a column.
  __device__ __forceinline__ char* Piece(int row, int column) const {
    return data + (column / kPanelColumns * kRows + row) * 128 + ((column / 8 ^ row) & 7) * 16;
  }
  // Columns column … column + 3.
  __device__ __forceinline__ void StoreFour(int row, int column, const float4& x) const {
    *reinterpret_cast<uint2*>(Piece(row, column) + (column & 4) * 2) =
        make_uint2(PackHalf(x.x, x.y), PackHalf(x.z, x.w));
  }
  // The block at (row, column).
  __device__ __forceinline__ void Store(int row, int column, const Left& x) const {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     PieceOfBlock(row + (Lane() & 15), Lane() >> 4, column)),
                 "r"(x.r[0]), "r"(x.r[1]), "r"(x.r[2]), "r"(x.r[3])
                 : "memory");
  }
  __device__ __forceinline__ Left LeftAt(int row, int column) const {
    Left x;
    LoadMatrix<false>(PieceOfBlock(row + (Lane() & 15), Lane() >> 4, column), x.r);
    return x;
  }
  // A(row, k) = x(k, row).
  __device__ __forceinline__ Left LeftOfColumns(int row, int k) const {
    Left x;
    LoadMatrix<true>(PieceOfBlock(k + (Lane() >> 4) * 8 + (Lane() & 7), Lane() >> 3 & 1, row), x.r);
    return x;
  }
  // 64 rows from n on: B(k, n) = x(n, k), k of 16 columns.
  __device__ __forceinline__ uint64_t OfRows(int n, int k) const {
    return Descriptor(data + (k / kPanelColumns * kRows + n) * 128 + k % kPanelColumns * 2);
  }
  // 16 rows from k on: B(k, n) = x(k, n), n of a panel's 64 columns.
  __device__ __forceinline__ uint64_t OfColumns(int k, int n) const {
    return Descriptor(data + (n / kPanelColumns * kRows + k) * 128);
  }

 private:
  // A row's first or second piece (half) in the 16 columns from `column` on; what differs between
  // columns is one xor.
  __device__ __forceinline__ uint32_t PieceOfBlock(int row, int half, int column) const {
    const uint32_t first = SharedAddress(data) + static_cast<uint32_t>(row) * 128 +
                           static_cast<uint32_t>((half ^ row) & 7) * 16;
    return (first ^ static_cast<uint32_t>(column % kPanelColumns * 2)) +
           static_cast<uint32_t>(column / kPanelColumns * kRows * 128);
  }
  // 128-byte swizzle, groups of 8 rows 1024 bytes apart.
  static __device__ __forceinline__ uint64_t Descriptor(const char* first) {
    const auto address = static_cast<uint64_t>(SharedAddress(first));
    return (address & 0x3ffff) >> 4 | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
           uint64_t{1} << 62;
  }
};

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace lethe::vla_chunk

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_WARPGROUP_CUDA_CUH_
