// Device code that the kernels of a prefill's reads share.
#ifndef LETHE_KERNELS_OVQ_OVQ_READ_CUDA_CUH_
#define LETHE_KERNELS_OVQ_OVQ_READ_CUDA_CUH_

#include <cstdint>

#include "kernels/ovq/ovq_cuda.cuh"

namespace lethe::ovq {

template <int kDim>
constexpr int kUnitSlots = kOvqUnitElements / kDim;

// Reads of one token come through OvqLaunchStep.
__device__ inline bool IsPrefill(const Sequence& sequence) { return sequence.length > 1; }

__device__ inline int64_t DictionaryRow(const OvqKernelArgs& args, int sequence_index, int head,
                                        int slot) {
  return (static_cast<int64_t>(sequence_index) * args.num_heads + head) * args.capacity + slot;
}

// The first of the unit's partials for a chunk, in tiles.
__device__ inline int64_t PartialTile(const OvqKernelArgs& args, int sequence_index, int head,
                                      int chunk, int unit) {
  const int64_t chain = static_cast<int64_t>(sequence_index) * args.num_heads + head;
  const int64_t row = (chain * args.segment_chunks + chunk - args.first_chunk) * args.num_units;
  return (row + unit) * (args.chunk_tokens / kOvqTileTokens);
}

// A tile of kTileSlots rows in shared memory against a tile of 16 tokens. bias(column, r) is the
// pair of biases of the slots at column and column + 1 for the token of row 8 r + g. Of a row's read
// lane t has elements 16 j + 4 t + {0, 1, 2, 3}: columns 2t of out[2 j] and out[2 j + 1], then 2t + 1.
template <int kDim, typename Bias>
__device__ void ReadTile(const uint32_t (&queries)[kDim / 16][4], float logit_scale,
                         const uint16_t* keys, const float* values, int first, const Lane& lane,
                         const Bias& bias, Reads<kDim>* reads) {
  constexpr int kColumns = kTileSlots<kDim> / 8;
  const KeyLane<kDim> key_lane(keys, first, lane);
  const ValueLane<kDim> value_lane(values, first, lane);
  float logits[kColumns][4] = {};
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int pair = 0; pair < kDim / 32; ++pair) {
      const uint4 b = key_lane.Load(n, pair);
      MmaHalf(logits[n], queries[2 * pair], b.x, b.y);
      MmaHalf(logits[n], queries[2 * pair + 1], b.z, b.w);
    }
  }
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float2 two = bias(first + 8 * n + 2 * lane.t, r);
      logits[n][2 * r] = fmaf(logit_scale, logits[n][2 * r], two.x);
      logits[n][2 * r + 1] = fmaf(logit_scale, logits[n][2 * r + 1], two.y);
    }
  }
  reads->template Softmax<kColumns, 2>(logits);
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    uint32_t a[4];
    WeightOperand(logits[n], a);
#pragma unroll
    for (int group = 0; group < kDim / 16; ++group) {
      const uint4 b = value_lane.Load(n, group);
      MmaTf32(reads->out[2 * group], a, b.x, b.y);
      MmaTf32(reads->out[2 * group + 1], a, b.z, b.w);
    }
  }
}

}  // namespace lethe::ovq

#endif  // LETHE_KERNELS_OVQ_OVQ_READ_CUDA_CUH_
