// Reads of sequences that bring one token (decode), and the pending chunks after a call.
//
// A decode streams the slots once from memory, so its time is their bytes. Each warp reads half a
// unit, in registers, in the matrix unit's layout with the token as row 0: the bits are those of a
// prefill. Where the batch leaves multiprocessors idle, a head's parts go to several blocks and
// OvqJoinKernel joins them.
#include <algorithm>

#include <cuda_runtime.h>

#include "kernels/base/status_macros.h"
#include "kernels/ovq/ovq_cuda.cuh"

namespace lethe {
namespace {

using ovq::GetSequence;
using ovq::kTileSlots;
using ovq::Lane;
using ovq::Reads;
using ovq::Sequence;
using ovq::ThisLane;

template <int kDim>
constexpr int kHalfSlots = kOvqUnitElements / kDim / 2;

constexpr int kWarps = 8;       // of a block that reads a head alone
constexpr int kSplitWarps = 2;  // of a block that shares a head with others
constexpr int kMaxSharedParts = 96;

// Read once: not worth a place in the first cache.
__device__ float4 LoadOnce(const float* address) {
  float4 x;
  asm("ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%0,%1,%2,%3}, [%4];"
      : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
      : "l"(address));
  return x;
}
template <bool kFull>
__device__ float4 LoadOnce(const float* row, int element, int size) {
  if (row == nullptr || (!kFull && element >= size)) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  return LoadOnce(row + element);
}

// Half a unit of slots.
struct SlotRows {
  const float* keys;
  const float* values;
  const int32_t* counts;
  int key_dim, value_dim, num_rows;

  __device__ const float* Key(int row) const {
    return row < num_rows ? keys + static_cast<int64_t>(row) * key_dim : nullptr;
  }
  __device__ const float* Value(int row) const {
    return row < num_rows ? values + static_cast<int64_t>(row) * value_dim : nullptr;
  }
  __device__ float Bias(int row) const {
    return row < num_rows ? ovq::Log2(static_cast<float>(counts[row])) : -ovq::Infinity();
  }
};

// The chunk's tokens up to the one that is read.
struct ChunkRows {
  const OvqKernelArgs& args;
  const Sequence& sequence;
  int head, num_rows;

  __device__ const float* Key(int row) const {
    return row < num_rows ? ovq::KeyRow(args, sequence, head, row) : nullptr;
  }
  __device__ const float* Value(int row) const {
    return row < num_rows ? ovq::ValueRow(args, sequence, head, row) : nullptr;
  }
  __device__ float Bias(int row) const { return row < num_rows ? 0.0f : -ovq::Infinity(); }
};

// kTileSlots rows from `first`, against the query in row 0.
template <int kDim, bool kFull, int kBatch, typename Rows>
__device__ void StreamTile(const uint32_t (&query)[kDim / 16][4], float logit_scale,
                           const Rows& rows, int first, int key_dim, int value_dim,
                           const Lane& lane, Reads<kDim>* reads) {
  constexpr int kColumns = kTileSlots<kDim> / 8;
  float logits[kColumns][4] = {};
#pragma unroll
  for (int n0 = 0; n0 < kColumns; n0 += kBatch) {
    float4 keys[kBatch][kDim / 16];
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
      const float* row = rows.Key(first + 8 * (n0 + n) + lane.g);
#pragma unroll
      for (int step = 0; step < kDim / 16; ++step) {
        keys[n][step] = LoadOnce<kFull>(row, 16 * step + 4 * lane.t, key_dim);
      }
    }
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
#pragma unroll
      for (int step = 0; step < kDim / 16; ++step) {
        const float4 x = keys[n][step];
        ovq::MmaHalf(logits[n0 + n], query[step], ovq::PackHalves(x.x, x.y),
                     ovq::PackHalves(x.z, x.w));
      }
      const int column = first + 8 * (n0 + n) + 2 * lane.t;
      logits[n0 + n][0] = fmaf(logit_scale, logits[n0 + n][0], rows.Bias(column));
      logits[n0 + n][1] = fmaf(logit_scale, logits[n0 + n][1], rows.Bias(column + 1));
    }
  }
  reads->template Softmax<kColumns, 1>(logits);
#pragma unroll
  for (int n0 = 0; n0 < kColumns; n0 += kBatch) {
    float4 values[kBatch][2][kDim / 32];
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float* row = rows.Value(first + 8 * (n0 + n) + 2 * lane.t + e);
#pragma unroll
        for (int group = 0; group < kDim / 32; ++group) {
          values[n][e][group] = LoadOnce<kFull>(row, 32 * group + 4 * lane.g, value_dim);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
      const uint32_t a[4] = {ovq::WeightToTf32(logits[n0 + n][0]), 0,
                             ovq::WeightToTf32(logits[n0 + n][1]), 0};
#pragma unroll
      for (int group = 0; group < kDim / 32; ++group) {
        const float4 x = values[n][0][group];
        const float4 y = values[n][1][group];
        ovq::MmaTf32(reads->out[4 * group], a, ovq::ToTf32(x.x), ovq::ToTf32(y.x));
        ovq::MmaTf32(reads->out[4 * group + 1], a, ovq::ToTf32(x.y), ovq::ToTf32(y.y));
        ovq::MmaTf32(reads->out[4 * group + 2], a, ovq::ToTf32(x.z), ovq::ToTf32(y.z));
        ovq::MmaTf32(reads->out[4 * group + 3], a, ovq::ToTf32(x.w), ovq::ToTf32(y.w));
      }
    }
  }
}

template <int kDim, bool kFull, int kBatch, typename Rows>
__device__ void StreamPart(const uint32_t (&query)[kDim / 16][4], float logit_scale,
                           const Rows& rows, int key_dim, int value_dim, const Lane& lane,
                           float* out, float2* stats) {
  Reads<kDim> reads;
  reads.Clear();
  for (int first = 0; first < rows.num_rows; first += kTileSlots<kDim>) {
    StreamTile<kDim, kFull, kBatch>(query, logit_scale, rows, first, key_dim, value_dim, lane,
                                    &reads);
  }
  reads.Finish();
  if (lane.g != 0) return;
#pragma unroll
  for (int n = 0; n < kDim / 8; ++n) {
    out[(n >> 2) * 32 + 8 * lane.t + (n & 3)] = reads.out[n][0];
    out[(n >> 2) * 32 + 8 * lane.t + 4 + (n & 3)] = reads.out[n][1];
  }
  if (lane.t == 0) *stats = make_float2(reads.largest[0], reads.weights[0]);
}

// Element `dim` of a read from its parts: the halves of units, then the chunk.
template <int kDim>
__device__ float JoinParts(const float* outs, const float2* stats, int num_halves, int dim) {
  const float2 chunk = stats[num_halves];
  float largest = chunk.x;
  for (int part = 0; part < num_halves; ++part) largest = fmaxf(largest, stats[part].x);
  float weights = 0.0f;
  float out = 0.0f;
  for (int part = 0; part < num_halves; part += 2) {
    const bool is_whole = part + 1 < num_halves;
    const float2 first = stats[part];
    const float2 second = is_whole ? stats[part + 1] : make_float2(-ovq::Infinity(), 0.0f);
    const ovq::PairScale pair = ovq::ScalePair(first.x, second.x);
    const float scale = ovq::Exp2(pair.largest - largest);
    weights = fmaf(scale, ovq::Join(pair, first.y, second.y), weights);
    const float second_out = is_whole ? outs[(part + 1) * kDim + dim] : 0.0f;
    out = fmaf(scale, ovq::Join(pair, outs[part * kDim + dim], second_out), out);
  }
  const float scale = ovq::Exp2(chunk.x - largest);
  weights = fmaf(scale, chunk.y, weights);
  return __fdiv_rn(fmaf(scale, outs[num_halves * kDim + dim], out), weights);
}

template <int kDim>
__device__ void StoreRead(const OvqKernelArgs& args, const Sequence& sequence, int head,
                          const float* outs, const float2* stats, int num_halves) {
  for (int dim = static_cast<int>(threadIdx.x); dim < args.value_dim;
       dim += static_cast<int>(blockDim.x)) {
    ovq::OutRow(args, sequence, head, sequence.pending)[dim] =
        JoinParts<kDim>(outs, stats, num_halves, dim);
  }
}

// Where the parts of a read go when its head is split over blocks.
template <int kDim>
__device__ float* PartOuts(const OvqKernelArgs& args, int sequence_index, int head) {
  const int64_t chain = static_cast<int64_t>(sequence_index) * args.num_heads + head;
  return args.partials + chain * (2 * args.num_units + 1) * kDim;
}
__device__ float2* PartStats(const OvqKernelArgs& args, int sequence_index, int head) {
  const int64_t chain = static_cast<int64_t>(sequence_index) * args.num_heads + head;
  return reinterpret_cast<float2*>(args.partial_stats) + chain * (2 * args.num_units + 1);
}

// Grid: (blocks of a head, heads, sequences); warps take the parts of a read in turn.
template <int kDim, bool kFull, int kBatch>
__global__ void __launch_bounds__(kWarps * 32, 2)
    OvqStepKernel(const __grid_constant__ OvqKernelArgs args) {
  extern __shared__ uint4 shared_memory[];
  const int sequence_index = static_cast<int>(blockIdx.z);
  const int head = static_cast<int>(blockIdx.y);
  const Sequence sequence = GetSequence(args, sequence_index);
  if (sequence.length != 1) return;
  const int num_filled = ovq::FilledBefore(args, sequence, 0);
  const int num_halves = (num_filled + kHalfSlots<kDim> - 1) / kHalfSlots<kDim>;
  const bool is_alone = gridDim.x == 1;
  float* outs = is_alone ? reinterpret_cast<float*>(shared_memory)
                         : PartOuts<kDim>(args, sequence_index, head);
  float2* stats = is_alone ? reinterpret_cast<float2*>(outs + (2 * args.num_units + 1) * kDim)
                           : PartStats(args, sequence_index, head);
  const int key_dim = kFull ? kDim : args.key_dim;
  const int value_dim = kFull ? kDim : args.value_dim;
  const float logit_scale = args.inputs.logit_scales[head] * ovq::kLog2E;
  const Lane lane = ThisLane();
  uint32_t query[kDim / 16][4];
  ovq::LoadOperand<kDim, kFull>(
      lane.g == 0 ? ovq::QueryRow(args, sequence, head, sequence.pending) : nullptr, nullptr,
      key_dim, lane.t, query);
  const int64_t state = (sequence.state * args.num_heads + head) * args.max_slots;
  const int num_warps = static_cast<int>(blockDim.x) >> 5;
  const int warp = static_cast<int>(threadIdx.x) >> 5;
  for (int part = static_cast<int>(blockIdx.x) * num_warps + warp; part <= num_halves;
       part += static_cast<int>(gridDim.x) * num_warps) {
    if (part < num_halves) {
      const int first = part * kHalfSlots<kDim>;
      const SlotRows rows{args.states.keys + (state + first) * key_dim,
                          args.states.values + (state + first) * value_dim,
                          args.states.counts + state + first,
                          key_dim,
                          value_dim,
                          min(kHalfSlots<kDim>, num_filled - first)};
      StreamPart<kDim, kFull, kBatch>(query, logit_scale, rows, key_dim, value_dim, lane,
                                      outs + part * kDim, stats + part);
    } else {
      const ChunkRows rows{args, sequence, head, sequence.pending + 1};
      StreamPart<kDim, kFull, kBatch>(query, logit_scale, rows, key_dim, value_dim, lane,
                                      outs + part * kDim, stats + part);
    }
  }
  if (!is_alone) return;
  __syncthreads();
  StoreRead<kDim>(args, sequence, head, outs, stats, num_halves);
}

// Grid: (heads, sequences), D threads.
template <int kDim>
__global__ void OvqJoinKernel(const __grid_constant__ OvqKernelArgs args) {
  const int sequence_index = static_cast<int>(blockIdx.y);
  const int head = static_cast<int>(blockIdx.x);
  const Sequence sequence = GetSequence(args, sequence_index);
  if (sequence.length != 1) return;
  const int num_filled = ovq::FilledBefore(args, sequence, 0);
  StoreRead<kDim>(args, sequence, head, PartOuts<kDim>(args, sequence_index, head),
                  PartStats(args, sequence_index, head),
                  (num_filled + kHalfSlots<kDim> - 1) / kHalfSlots<kDim>);
}

// Grid: (heads, sequences). The tokens behind the last full chunk become the pending ones; after a
// merge nothing of the merged ones stays.
__global__ void OvqAppendKernel(const __grid_constant__ OvqKernelArgs args) {
  const int head = static_cast<int>(blockIdx.x);
  const Sequence sequence = GetSequence(args, static_cast<int>(blockIdx.y));
  const int merged = sequence.num_merges * args.chunk_tokens;
  const int size = sequence.pending + sequence.length - merged;
  const int64_t chunk = (sequence.state * args.num_heads + head) * args.chunk_tokens;
  const int first = merged == 0 ? sequence.pending : 0;
  const int last = merged == 0 ? size : args.chunk_tokens;
  const int columns = (args.key_dim + args.value_dim) / 4;
  for (int i = static_cast<int>(threadIdx.x); i < (last - first) * columns;
       i += static_cast<int>(blockDim.x)) {
    const int row = first + i / columns;
    const int element = i % columns * 4;
    const bool is_key = element < args.key_dim;
    const int column = is_key ? element : element - args.key_dim;
    float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (row < size) {
      const float* from = is_key ? ovq::KeyRow(args, sequence, head, merged + row)
                                 : ovq::ValueRow(args, sequence, head, merged + row);
      x = *reinterpret_cast<const float4*>(from + column);
    }
    float* to = is_key ? args.states.pending_keys + (chunk + row) * args.key_dim
                       : args.states.pending_values + (chunk + row) * args.value_dim;
    *reinterpret_cast<float4*>(to + column) = x;
  }
}

template <int kDim, bool kFull, int kBatch>
absl::Status Launch(Queue* queue, const OvqKernelArgs& args, int64_t max_filled) {
  const auto heads = static_cast<unsigned>(args.num_heads);
  const auto sequences = static_cast<unsigned>(args.num_sequences);
  const int num_parts = 2 * args.num_units + 1;
  const auto max_parts =
      static_cast<int>((max_filled + kHalfSlots<kDim> - 1) / kHalfSlots<kDim>) + 1;
  const bool is_alone = args.num_heads * args.num_sequences >= 2 * queue->num_multiprocessors() &&
                        num_parts <= kMaxSharedParts;
  const int warps = is_alone ? kWarps : kSplitWarps;
  const int blocks = is_alone ? 1 : std::max(2, (max_parts + warps - 1) / warps);
  const auto kernel = &OvqStepKernel<kDim, kFull, kBatch>;
  const int bytes =
      is_alone ? num_parts * static_cast<int>(kDim * sizeof(float) + sizeof(float2)) : 0;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  kernel<<<dim3(static_cast<unsigned>(blocks), heads, sequences), warps * 32, bytes,
           queue->stream()>>>(args);
  LETHE_RETURN_IF_ERROR(queue->LaunchStatus("OvqStepKernel"));
  if (is_alone) return absl::OkStatus();
  OvqJoinKernel<kDim><<<dim3(heads, sequences), kDim, 0, queue->stream()>>>(args);
  return queue->LaunchStatus("OvqJoinKernel");
}

}  // namespace

absl::Status OvqLaunchStep(Queue* queue, const OvqKernelArgs& args, int dim, int64_t max_filled) {
  const bool is_full = args.key_dim == dim && args.value_dim == dim;
  if (dim == 64) {
    return is_full ? Launch<64, true, 2>(queue, args, max_filled)
                   : Launch<64, false, 2>(queue, args, max_filled);
  }
  return is_full ? Launch<128, true, 1>(queue, args, max_filled)
                 : Launch<128, false, 1>(queue, args, max_filled);
}

absl::Status OvqLaunchAppend(Queue* queue, const OvqKernelArgs& args) {
  OvqAppendKernel<<<dim3(static_cast<unsigned>(args.num_heads),
                         static_cast<unsigned>(args.num_sequences)),
                    128, 0, queue->stream()>>>(args);
  return queue->LaunchStatus("OvqAppendKernel");
}

}  // namespace lethe
