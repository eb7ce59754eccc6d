// A prefill's reads with mma.sync, which every device has.
#include <cuda_runtime.h>

#include "kernels/base/status_macros.h"
#include "kernels/ovq/ovq_read_cuda.cuh"

namespace lethe {
namespace {

// Four 8 x 8 matrices of halves, whose rows lanes 8 i .. 8 i + 7 point at.
__device__ void LoadMatrices(const void* row, uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(ovq::SharedAddress(row))
               : "memory");
}
__device__ void LoadTransposed(const void* row, uint32_t (&x)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(ovq::SharedAddress(row))
               : "memory");
}

// The products of a tile of kTileSlots, by a warp for its 16 tokens.
struct MmaEngine {
  static constexpr int kRows = 16;  // tokens whose products are made together

  // logits = queries keys^T.
  template <int kDim, int kTokens, int kParts, int kColumns>
  __device__ static void Logits(uint16_t* queries, int first_row, uint16_t* keys, int first,
                                float (&logits)[kColumns][4]) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    ovq::SetZero(logits);
#pragma unroll
    for (int pair = 0; pair < kDim / 32; ++pair) {
      uint32_t a[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        LoadMatrices(ovq::MatrixPiece(queries, kTokens, first_row + (lane & 15),
                                      4 * pair + 2 * i + (lane >> 4)),
                     a[i]);
      }
#pragma unroll
      for (int n = 0; n < kColumns; ++n) {
        uint32_t b[4];
        LoadMatrices(
            ovq::MatrixPiece(keys, kParts, first + 8 * n + (lane & 7), 4 * pair + (lane >> 3)), b);
        ovq::MmaHalf(logits[n], a[0], b[0], b[1]);
        ovq::MmaHalf(logits[n], a[1], b[2], b[3]);
      }
    }
  }

  // out += weights values; kFirst: out = weights values.
  template <bool kFirst, int kDim, int kParts, int kSteps>
  __device__ static void Values(const uint32_t (&weights)[kSteps][4], uint16_t* values, int first,
                                float (&out)[kDim / 8][4]) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    if constexpr (kFirst) ovq::SetZero(out);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int group = 0; group < kDim / 16; ++group) {
        uint32_t b[4];
        LoadTransposed(ovq::MatrixPiece(values, kParts, first + 16 * step + (lane & 15),
                                        2 * group + (lane >> 4)),
                       b);
        ovq::MmaHalf(out[2 * group], weights[step], b[0], b[1]);
        ovq::MmaHalf(out[2 * group + 1], weights[step], b[2], b[3]);
      }
    }
  }
};

template <int kDim, bool kFull, int kTokens>
__global__ void __launch_bounds__(2 * kTokens, 1)
    OvqReadKernel(const __grid_constant__ OvqKernelArgs args) {
  ovq::ReadOneChunk<MmaEngine, kDim, kFull, kTokens>(args);
}

template <int kDim, bool kFull>
absl::Status Launch(Queue* queue, const OvqKernelArgs& args) {
  if (args.chunk_tokens == 64) {
    return ovq::LaunchReadKernel(queue, args, &OvqReadKernel<kDim, kFull, 64>,
                                 ovq::kReadBytes<kDim, 64>);
  }
  return ovq::LaunchReadKernel(queue, args, &OvqReadKernel<kDim, kFull, 128>,
                               ovq::kReadBytes<kDim, 128>);
}

}  // namespace

absl::Status OvqLaunchRead(Queue* queue, const OvqKernelArgs& args, int dim) {
  const bool is_full = args.key_dim == dim && args.value_dim == dim;
  if (dim == 64) return is_full ? Launch<64, true>(queue, args) : Launch<64, false>(queue, args);
  return is_full ? Launch<128, true>(queue, args) : Launch<128, false>(queue, args);
}

}  // namespace lethe
