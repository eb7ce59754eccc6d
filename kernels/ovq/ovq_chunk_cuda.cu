// What surrounds a prefill's reads against the slots: OvqDictionaryKernel makes the slots of the
// call's start as the reads see them, OvqChunkKernel reads each chunk's own tokens and joins the
// units.
#include <cuda_runtime.h>

#include "kernels/base/status_macros.h"
#include "kernels/ovq/ovq_read_cuda.cuh"

namespace lethe {
namespace {

using ovq::DictionaryRow;
using ovq::GetSequence;
using ovq::IsPrefill;
using ovq::kTileSlots;
using ovq::kUnitSlots;
using ovq::Lane;
using ovq::LoadRow;
using ovq::PartialTile;
using ovq::Reads;
using ovq::ReadTile;
using ovq::Sequence;
using ovq::ThisLane;

// Grid: (units, heads, sequences), 256 threads.
template <int kDim, bool kFull>
__global__ void OvqDictionaryKernel(const __grid_constant__ OvqKernelArgs args) {
  const int sequence_index = static_cast<int>(blockIdx.z);
  const int head = static_cast<int>(blockIdx.y);
  const Sequence sequence = GetSequence(args, sequence_index);
  if (!IsPrefill(sequence)) return;
  const int first = static_cast<int>(blockIdx.x) * kUnitSlots<kDim>;
  const int last = min(first + kUnitSlots<kDim>, ovq::FilledBefore(args, sequence, 0));
  const int64_t state = (sequence.state * args.num_heads + head) * args.max_slots;
  const int64_t dictionary = DictionaryRow(args, sequence_index, head, 0);
  for (int i = static_cast<int>(threadIdx.x); i < (last - first) * (kDim / 4); i += 256) {
    const int slot = first + i / (kDim / 4);
    const int column = i % (kDim / 4);
    const float* key_row = args.states.keys + (state + slot) * args.key_dim;
    const float* value_row = args.states.values + (state + slot) * args.value_dim;
    if (column < kDim / 8) {
      *reinterpret_cast<uint4*>(args.dictionary_keys + (dictionary + slot) * kDim + 8 * column) =
          ovq::KeyPiece<kFull>(key_row, column, args.key_dim);
    }
    *reinterpret_cast<float4*>(args.dictionary_values + (dictionary + slot) * kDim + 4 * column) =
        ovq::RoundValues(LoadRow<kFull>(value_row, 4 * column, args.value_dim));
    if (column == 0) {
      args.dictionary_biases[dictionary + slot] =
          ovq::Log2(static_cast<float>(args.states.counts[state + slot]));
    }
  }
}

template <int kDim>
struct ChunkShared {
  float values[128 * kDim];
  uint16_t keys[128 * kDim];
};

// Joins a tile's units and its chunk's part, as JoinParts of ovq_step_cuda.cu does for one token.
template <int kDim>
__device__ void JoinUnits(const OvqKernelArgs& args, int64_t tile, int num_units, const Lane& lane,
                          Reads<kDim>* reads) {
  const int64_t stride = args.chunk_tokens / kOvqTileTokens;  // in tiles, between units
  const auto* stats = reinterpret_cast<const float2*>(args.partial_stats);
  const auto* outs = reinterpret_cast<const float4*>(args.partials);
  float largest[2] = {reads->largest[0], reads->largest[1]};
#pragma unroll 4
  for (int unit = 0; unit < num_units; ++unit) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t row = (tile + unit * stride) * kOvqTileTokens + 8 * r + lane.g;
      largest[r] = fmaxf(largest[r], stats[row].x);
    }
  }
  float weights[2] = {};
  float out[kDim / 8][4] = {};
#pragma unroll 2
  for (int unit = 0; unit < num_units; ++unit) {
    float scale[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t row = (tile + unit * stride) * kOvqTileTokens + 8 * r + lane.g;
      scale[r] = ovq::Exp2(stats[row].x - largest[r]);
      weights[r] = fmaf(scale[r], stats[row].y, weights[r]);
    }
    const float4* part = outs + (tile + unit * stride) * (kDim / 8) * 32 + lane.index;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const float4 x = part[n * 32];
      out[n][0] = fmaf(scale[0], x.x, out[n][0]);
      out[n][1] = fmaf(scale[0], x.y, out[n][1]);
      out[n][2] = fmaf(scale[1], x.z, out[n][2]);
      out[n][3] = fmaf(scale[1], x.w, out[n][3]);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float scale = ovq::Exp2(reads->largest[r] - largest[r]);
    weights[r] = fmaf(scale, reads->weights[r], weights[r]);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int e = 2 * r; e < 2 * r + 2; ++e) {
        reads->out[n][e] = __fdiv_rn(fmaf(scale, reads->out[n][e], out[n][e]), weights[r]);
      }
    }
  }
}

// Grid: (chunks, heads, sequences); 2 L threads: a warp for 16 tokens; shared memory: ChunkShared.
template <int kDim, bool kFull>
__global__ void __launch_bounds__(256, kDim == 64 ? 2 : 1)
    OvqChunkKernel(const __grid_constant__ OvqKernelArgs args) {
  extern __shared__ uint4 shared_memory[];
  auto& shared = *reinterpret_cast<ChunkShared<kDim>*>(shared_memory);
  const int sequence_index = static_cast<int>(blockIdx.z);
  const int head = static_cast<int>(blockIdx.y);
  const int chunk = args.first_chunk + static_cast<int>(blockIdx.x);
  const Sequence sequence = GetSequence(args, sequence_index);
  if (!IsPrefill(sequence) || chunk >= sequence.num_chunks) return;
  const int first_token = chunk * args.chunk_tokens;
  const int num_tokens = min(args.chunk_tokens, sequence.pending + sequence.length - first_token);
  for (int i = static_cast<int>(threadIdx.x); i < args.chunk_tokens * (kDim / 4);
       i += static_cast<int>(blockDim.x)) {
    const int row = i / (kDim / 4);
    const int column = i % (kDim / 4);
    const bool is_set = row < num_tokens;
    if (column < kDim / 8) {
      const float* key = is_set ? ovq::KeyRow(args, sequence, head, first_token + row) : nullptr;
      *reinterpret_cast<uint4*>(shared.keys + ovq::SharedKey<kDim>(row, column)) =
          ovq::KeyPiece<kFull>(key, column, args.key_dim);
    }
    const float* value = is_set ? ovq::ValueRow(args, sequence, head, first_token + row) : nullptr;
    ovq::StoreSharedValues<kDim>(
        shared.values, row, 4 * column,
        ovq::RoundValues(LoadRow<kFull>(value, 4 * column, args.value_dim)));
  }
  __syncthreads();
  const Lane lane = ThisLane();
  const int warp = static_cast<int>(threadIdx.x) >> 5;
  const int first_row = 16 * warp;
  uint32_t queries[kDim / 16][4];
  const int token = first_token + first_row + lane.g;
  ovq::LoadOperand<kDim, kFull>(ovq::QueryRow(args, sequence, head, token),
                                ovq::QueryRow(args, sequence, head, token + 8), args.key_dim,
                                lane.t, queries);
  const float logit_scale = args.inputs.logit_scales[head] * ovq::kLog2E;
  Reads<kDim> reads;
  reads.Clear();
  for (int first = 0; first < first_row + 16; first += kTileSlots<kDim>) {
    ReadTile<kDim>(
        queries, logit_scale, shared.keys, shared.values, first, lane,
        [&](int column, int r) {
          const int row = first_row + 8 * r + lane.g;
          return make_float2(column <= row ? 0.0f : -ovq::Infinity(),
                             column + 1 <= row ? 0.0f : -ovq::Infinity());
        },
        &reads);
  }
  reads.Finish();
  const int num_filled = ovq::FilledBefore(args, sequence, chunk);
  const int num_units = (num_filled + kUnitSlots<kDim> - 1) / kUnitSlots<kDim>;
  JoinUnits<kDim>(args, PartialTile(args, sequence_index, head, chunk, 0) + warp, num_units, lane,
                  &reads);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float* row = ovq::OutRow(args, sequence, head, token + 8 * r);
    if (row == nullptr) continue;
#pragma unroll
    for (int n = 0; n < kDim / 8; n += 2) {
      const int dim = 8 * n + 4 * lane.t;
      if (!kFull && dim >= args.value_dim) continue;
      *reinterpret_cast<float4*>(row + dim) =
          make_float4(reads.out[n][2 * r], reads.out[n + 1][2 * r], reads.out[n][2 * r + 1],
                      reads.out[n + 1][2 * r + 1]);
    }
  }
}

template <int kDim, bool kFull>
absl::Status LaunchDictionary(Queue* queue, const OvqKernelArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.num_units), static_cast<unsigned>(args.num_heads),
                  static_cast<unsigned>(args.num_sequences));
  OvqDictionaryKernel<kDim, kFull><<<grid, 256, 0, queue->stream()>>>(args);
  return queue->LaunchStatus("OvqDictionaryKernel");
}

template <int kDim, bool kFull>
absl::Status LaunchChunk(Queue* queue, const OvqKernelArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.segment_chunks), static_cast<unsigned>(args.num_heads),
                  static_cast<unsigned>(args.num_sequences));
  constexpr int kBytes = sizeof(ChunkShared<kDim>);
  const auto kernel = &OvqChunkKernel<kDim, kFull>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  kernel<<<grid, 2 * args.chunk_tokens, kBytes, queue->stream()>>>(args);
  return queue->LaunchStatus("OvqChunkKernel");
}

}  // namespace

absl::Status OvqLaunchDictionary(Queue* queue, const OvqKernelArgs& args, int dim) {
  const bool is_full = args.key_dim == dim && args.value_dim == dim;
  if (dim == 64) {
    return is_full ? LaunchDictionary<64, true>(queue, args)
                   : LaunchDictionary<64, false>(queue, args);
  }
  return is_full ? LaunchDictionary<128, true>(queue, args)
                 : LaunchDictionary<128, false>(queue, args);
}

absl::Status OvqLaunchChunk(Queue* queue, const OvqKernelArgs& args, int dim) {
  const bool is_full = args.key_dim == dim && args.value_dim == dim;
  if (dim == 64)
    return is_full ? LaunchChunk<64, true>(queue, args) : LaunchChunk<64, false>(queue, args);
  return is_full ? LaunchChunk<128, true>(queue, args) : LaunchChunk<128, false>(queue, args);
}

}  // namespace lethe
