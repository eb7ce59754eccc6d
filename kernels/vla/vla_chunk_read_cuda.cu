// VlaChunk's stage read: out = P T V + (Q - P T K^) S^T and the read norm; all chunks at once.
//
// A block of D / 16 warps per chunk and head; a warp has 64 columns of 16 tokens. Everything lies in the
// order of the registers that use it.
#include "kernels/base/early_launch_cuda.cuh"
#include "kernels/base/queue.h"
#include "kernels/vla/vla_chunk_cuda.h"
#include "kernels/vla/vla_chunk_half_cuda.cuh"

namespace lethe {
namespace {

using namespace vla_chunk;  // NOLINT(google-build-using-namespace): the kernels' vocabulary

struct ReadArguments {
  int64_t token_stride;
  int num_heads;
  const uint4* queries;
  const float* query_scales;
  const uint4* reads;
  const float* read_scales;
  const uint2* states;
  const float* state_scales;
  float* out;  // of the segment's first token
};

// Divides the block's 64 rows, which are `scales` times too long, by their root mean square, in f64 up to
// the root.
template <int kDim>
__device__ __forceinline__ void Normalize(int warp, const float* scales, double* sums,
                                          Block (&c)[4]) {
  const int row = (warp & 3) * kTile + (Lane() >> 2);
  double upper = 0.0;
  double lower = 0.0;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float(&x)[4] = c[n / 2][n % 2];
    upper = __fma_rn(x[0], x[0], __fma_rn(x[1], x[1], upper));
    lower = __fma_rn(x[2], x[2], __fma_rn(x[3], x[3], lower));
  }
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    upper += __shfl_xor_sync(kFullWarp, upper, distance);
    lower += __shfl_xor_sync(kFullWarp, lower, distance);
  }
  if constexpr (kDim == 128) {
    double* own = sums + (warp >> 2) * kTokens + row;
    if ((Lane() & 3) == 0) own[0] = upper, own[8] = lower;
    __syncthreads();
    upper = sums[row] + sums[kTokens + row];
    lower = sums[row + 8] + sums[kTokens + row + 8];
  }
  const auto divisor = [](double sum, double scale) {
    return static_cast<float>(__dsqrt_rn(sum / kDim + kVlaReadEpsilon * (scale * scale)));
  };
  const float of_upper = divisor(upper, scales[row]);
  const float of_lower = divisor(lower, scales[row + 8]);
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    float(&x)[4] = c[n / 2][n % 2];
    x[0] = __fdiv_rn(x[0], of_upper);
    x[1] = __fdiv_rn(x[1], of_upper);
    x[2] = __fdiv_rn(x[2], of_lower);
    x[3] = __fdiv_rn(x[3], of_lower);
  }
}

// Numbers times a power of 2 that is at most 1.
__device__ __forceinline__ uint32_t Shrink(uint32_t pair, __half2 by) {
  const __half2 product = __hmul2(reinterpret_cast<const __half2&>(pair), by);
  return reinterpret_cast<const uint32_t&>(product);
}

template <int kDim>
__global__ void __launch_bounds__(kDim * 2, kDim == 64 ? 7 : 3)
    ReadKernel(ReadArguments arguments) {
  constexpr int kBlocks = kDim / kTile;
  __shared__ double sums[kDim == 128 ? 2 * kTokens : 1];
  cuda::WaitForEarlierKernels();
  const int64_t index = blockIdx.x;
  const int head = static_cast<int>(blockIdx.x) % arguments.num_heads;
  const int warp = Warp();
  const int strip = warp & 3;
  const int first = (warp >> 2) * 4;
  float* out =
      arguments.out + index / arguments.num_heads * kTokens * arguments.token_stride + head * kDim;
  Left q[kBlocks];
#pragma unroll
  for (int k = 0; k < kBlocks; ++k) {
    const uint4 x = arguments.queries[((index * 4 + strip) * kBlocks + k) * 32 + Lane()];
    q[k] = {{x.x, x.y, x.z, x.w}};
  }
  Block c[4];
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int64_t upper = ((index * kBlocks + first + n) * 2) * kBlocks;  // 8 values, then 8 more
    const int64_t lower = upper + kBlocks;
    // Lane k has the scale of the upper values' block k, lane kBlocks + k of the lower ones'.
    const float scale = Lane() < 2 * kBlocks ? arguments.state_scales[upper + Lane()] : 0.0f;
    const float largest = __uint_as_float(LargestOfWarp(Magnitude(scale)));
    const __half2 own = __float2half2_rn(scale * Reciprocal2(largest));
    Block sum;
    ClearBlock(sum);
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      const uint2 s = arguments.states[(upper + k) * 32 + Lane()];
      const uint2 t = arguments.states[(lower + k) * 32 + Lane()];
      const __half2 of_s = __shfl_sync(kFullWarp, own, k);
      const __half2 of_t = __shfl_sync(kFullWarp, own, kBlocks + k);
      const Right right{
          {Shrink(s.x, of_s), Shrink(s.y, of_s), Shrink(t.x, of_t), Shrink(t.y, of_t)}};
      AddProduct(q[k], right, sum);
    }
    const int64_t read = (index * 4 + strip) * kBlocks + first + n;
    const uint4 x = arguments.reads[read * 32 + Lane()];
    const float own_scale = arguments.read_scales[read];
    const uint32_t pairs[4] = {x.x, x.y, x.z, x.w};  // in a left operand's order
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 pair = UnpackHalf(pairs[e]);
      const int at = e % 2 * 2;
      c[n][e / 2][at] = __fmaf_rn(largest, sum[e / 2][at], own_scale * pair.x);
      c[n][e / 2][at + 1] = __fmaf_rn(largest, sum[e / 2][at + 1], own_scale * pair.y);
    }
  }
  Normalize<kDim>(warp, arguments.query_scales + index * kTokens, sums, c);
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    ForEachPairOfBlock(
        strip * kTile, (first + n) * kTile, c[n], [&](int i, int j, float x, float y) {
          *reinterpret_cast<float2*>(out + i * arguments.token_stride + j) = make_float2(x, y);
        });
  }
}

}  // namespace

absl::Status VlaChunkRead(Queue* queue, const VlaChunkSegment& segment) {
  const VlaChunkWork& work = segment.work;
  const int64_t heads = segment.options.num_heads;
  const int64_t stride = heads * segment.options.key_dim;
  const ReadArguments arguments{stride,
                                static_cast<int>(heads),
                                reinterpret_cast<const uint4*>(work.queries),
                                work.query_scales,
                                reinterpret_cast<const uint4*>(work.reads),
                                work.read_scales,
                                reinterpret_cast<const uint2*>(work.states),
                                work.state_scales,
                                segment.batch.out + segment.chunk_begin * kVlaChunkTokens * stride};
  const int64_t blocks = segment.num_chunks * heads;
  segment.options.key_dim == 64
      ? cuda::LaunchEarly(queue, ReadKernel<64>, blocks, 128, 0, arguments)
      : cuda::LaunchEarly(queue, ReadKernel<128>, blocks, 256, 0, arguments);
  return queue->LaunchStatus("vla chunk read");
}

}  // namespace lethe
