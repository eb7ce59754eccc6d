// What VlaChunk's kernels have in common: sizes, blocks of triangles, asynchronous copies.
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

// The thread's warp in its block, as a number that the compiler knows to be the same for all lanes:
// without that it guards every shuffle and matrix instruction under a condition on it. Costs a shuffle.
__device__ __forceinline__ int Warp() {
  return __shfl_sync(kFullWarp, static_cast<int>(threadIdx.x) >> 5, 0);
}

// Index of block (row, column), row >= column, among packed lower blocks.
__device__ __forceinline__ int LowerBlock(int row, int column) {
  return row * (row + 1) / 2 + column;
}

// The inverse of LowerBlock, up to 8 rows of blocks; row 8 for what comes after.
__device__ __forceinline__ void BlockOf(int index, int* row, int* column) {
  int r = 0;
#pragma unroll
  for (int next = 1; next <= 8; ++next) r += index >= LowerBlock(next, 0) ? 1 : 0;
  *row = r;
  *column = index - LowerBlock(r, 0);
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

}  // namespace lethe::vla_chunk

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_CUDA_CUH_
