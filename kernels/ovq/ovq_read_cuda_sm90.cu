// A prefill's reads with warpgroup products (wgmma) of sm_90a, which take their right operand from
// shared memory: one load for 64 tokens instead of 16. On an H200 they give the bits of mma.sync;
// ovq_batch_bits_test compares reads of both.
#include <cuda_runtime.h>

#include "kernels/base/status_macros.h"
#include "kernels/ovq/ovq_read_cuda.cuh"

namespace lethe {
namespace {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A descriptor of a matrix of halves with 128-byte rows and 128-byte swizzle (PTX ISA 9.7.15.5.1):
// groups of 8 rows are 1024 bytes apart.
__device__ __forceinline__ uint64_t Descriptor(const void* first) {
  const auto address = static_cast<uint64_t>(__cvta_generic_to_shared(first));
  return (address & 0x3ffff) >> 4 | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}
__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void EndProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// The compiler may not move uses of the sums across the fences.
template <int kColumns>
__device__ __forceinline__ void Hold(float (&d)[kColumns][4]) {
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(d[n][e])::"memory");
  }
}

// d = a b, or with kSum d += a b: a [64][16], b^T [32][16], both in shared memory.
template <bool kSum>
__device__ __forceinline__ void WgmmaShared(float (&d)[4][4], uint64_t a, uint64_t b) {
  if constexpr (kSum) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
        "%9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, 0, 0;"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
          "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
        : "l"(a), "l"(b));
  } else {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
        "%9, %10, %11, %12, %13, %14, %15}, %16, %17, 0, 1, 1, 0, 0;"
        : "=f"(d[0][0]), "=f"(d[0][1]), "=f"(d[0][2]), "=f"(d[0][3]), "=f"(d[1][0]), "=f"(d[1][1]),
          "=f"(d[1][2]), "=f"(d[1][3]), "=f"(d[2][0]), "=f"(d[2][1]), "=f"(d[2][2]), "=f"(d[2][3]),
          "=f"(d[3][0]), "=f"(d[3][1]), "=f"(d[3][2]), "=f"(d[3][3])
        : "l"(a), "l"(b));
  }
}
// d = a b, or with kSum d += a b: a [64][16], b^T [64][16], both in shared memory.
template <bool kSum>
__device__ __forceinline__ void WgmmaShared(float (&d)[8][4], uint64_t a, uint64_t b) {
  if constexpr (kSum) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
        "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
        "%27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
          "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
          "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
          "+f"(d[7][2]), "+f"(d[7][3])
        : "l"(a), "l"(b));
  } else {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
        "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
        "%27, %28, %29, %30, %31}, %32, %33, 0, 1, 1, 0, 0;"
        : "=f"(d[0][0]), "=f"(d[0][1]), "=f"(d[0][2]), "=f"(d[0][3]), "=f"(d[1][0]), "=f"(d[1][1]),
          "=f"(d[1][2]), "=f"(d[1][3]), "=f"(d[2][0]), "=f"(d[2][1]), "=f"(d[2][2]), "=f"(d[2][3]),
          "=f"(d[3][0]), "=f"(d[3][1]), "=f"(d[3][2]), "=f"(d[3][3]), "=f"(d[4][0]), "=f"(d[4][1]),
          "=f"(d[4][2]), "=f"(d[4][3]), "=f"(d[5][0]), "=f"(d[5][1]), "=f"(d[5][2]), "=f"(d[5][3]),
          "=f"(d[6][0]), "=f"(d[6][1]), "=f"(d[6][2]), "=f"(d[6][3]), "=f"(d[7][0]), "=f"(d[7][1]),
          "=f"(d[7][2]), "=f"(d[7][3])
        : "l"(a), "l"(b));
  }
}
// The same with a in registers and b [16][64].
template <bool kSum>
__device__ __forceinline__ void WgmmaRegisters(float (*d)[4], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (kSum) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
        "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
        "%27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
          "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
          "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
          "+f"(d[7][2]), "+f"(d[7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  } else {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
        "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
        "%27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, 0, 1, 1, 1;"
        : "=f"(d[0][0]), "=f"(d[0][1]), "=f"(d[0][2]), "=f"(d[0][3]), "=f"(d[1][0]), "=f"(d[1][1]),
          "=f"(d[1][2]), "=f"(d[1][3]), "=f"(d[2][0]), "=f"(d[2][1]), "=f"(d[2][2]), "=f"(d[2][3]),
          "=f"(d[3][0]), "=f"(d[3][1]), "=f"(d[3][2]), "=f"(d[3][3]), "=f"(d[4][0]), "=f"(d[4][1]),
          "=f"(d[4][2]), "=f"(d[4][3]), "=f"(d[5][0]), "=f"(d[5][1]), "=f"(d[5][2]), "=f"(d[5][3]),
          "=f"(d[6][0]), "=f"(d[6][1]), "=f"(d[6][2]), "=f"(d[6][3]), "=f"(d[7][0]), "=f"(d[7][1]),
          "=f"(d[7][2]), "=f"(d[7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  }
}

// The products of a tile of kTileSlots, by a warpgroup for its 64 tokens.
struct WgmmaEngine {
  static constexpr int kRows = 64;  // tokens whose products are made together

  template <int kDim, int kTokens, int kParts, int kColumns>
  __device__ static __forceinline__ void Logits(uint16_t* queries, int first_row, uint16_t* keys,
                                                int first, float (&logits)[kColumns][4]) {
    constexpr int kBlock = ovq::kBlockColumns;
    const uint64_t a = Descriptor(queries + first_row / kRows * kRows * kBlock);
    const uint64_t b = Descriptor(keys + first * kBlock);
    BeginProducts();
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      // In units of 16 bytes: a step is 32 bytes of a row, a block all rows' 128 bytes.
      const int place = step % 4 * 2;
      const uint64_t a_step = a + static_cast<uint64_t>(step / 4 * kTokens * 8 + place);
      const uint64_t b_step = b + static_cast<uint64_t>(step / 4 * kParts * 8 + place);
      step == 0 ? WgmmaShared<false>(logits, a_step, b_step)
                : WgmmaShared<true>(logits, a_step, b_step);
    }
    EndProducts();
    Hold(logits);
  }

  template <bool kFirst, int kDim, int kParts, int kSteps>
  __device__ static __forceinline__ void Values(const uint32_t (&weights)[kSteps][4],
                                                uint16_t* values, int first,
                                                float (&out)[kDim / 8][4]) {
    const uint64_t b = Descriptor(values + first * ovq::kBlockColumns);
    if constexpr (!kFirst) Hold(out);
    BeginProducts();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int block = 0; block < kDim / ovq::kBlockColumns; ++block) {
        const uint64_t b_step = b + static_cast<uint64_t>(block * kParts * 8 + step * 16 * 8);
        kFirst&& step == 0 ? WgmmaRegisters<false>(out + 8 * block, weights[step], b_step)
                           : WgmmaRegisters<true>(out + 8 * block, weights[step], b_step);
      }
    }
    EndProducts();
    Hold(out);
  }
};

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <int kDim, bool kFull, int kTokens>
__global__ void __launch_bounds__(2 * kTokens, (kDim == 64 ? 256 : 128) / kTokens)
    OvqReadSm90Kernel(const __grid_constant__ OvqKernelArgs args) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  ovq::ReadOneChunk<WgmmaEngine, kDim, kFull, kTokens>(args);
#endif
}

template <int kDim, bool kFull>
absl::Status Launch(Queue* queue, const OvqKernelArgs& args) {
  if (args.chunk_tokens == 64) {
    return ovq::LaunchReadKernel(queue, args, &OvqReadSm90Kernel<kDim, kFull, 64>,
                                 ovq::kReadBytes<kDim, 64>);
  }
  return ovq::LaunchReadKernel(queue, args, &OvqReadSm90Kernel<kDim, kFull, 128>,
                               ovq::kReadBytes<kDim, 128>);
}

}  // namespace

absl::Status OvqLaunchReadSm90(Queue* queue, const OvqKernelArgs& args, int dim) {
  const bool is_full = args.key_dim == dim && args.value_dim == dim;
  if (dim == 64) return is_full ? Launch<64, true>(queue, args) : Launch<64, false>(queue, args);
  return is_full ? Launch<128, true>(queue, args) : Launch<128, false>(queue, args);
}

}  // namespace lethe
