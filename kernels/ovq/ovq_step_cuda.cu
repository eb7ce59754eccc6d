// Reads of sequences that bring one token (decode).
//
// A decode streams the slots once from memory, so its time is their bytes. Each warp reads a
// part, in registers, in the matrix unit's layout with the token as row 0: the bits are those of a
// prefill. Where the batch leaves multiprocessors idle, a head's parts go to several blocks and
// OvqJoinKernel joins them.
#include <algorithm>
#include <type_traits>

#include <cuda_runtime.h>

#include "kernels/base/status_macros.h"
#include "kernels/ovq/ovq_cuda.cuh"

namespace lethe {
namespace {

using ovq::GetSequence;
using ovq::kPartSlots;
using ovq::kTileSlots;
using ovq::Lane;
using ovq::Reads;
using ovq::Sequence;
using ovq::ThisLane;

constexpr int kSplitWarps = 2;  // of a block that shares a head with others
constexpr int kMaxSharedParts = 96;

// Read once: not worth a place in the first cache.
__device__ float4 LoadOnce(const float* address) {
  float4 x;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(address));
  return x;
}
template <bool kFull>
__device__ float4 LoadOnce(const float* row, int element, int size) {
  if (row == nullptr || (!kFull && element >= size)) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  return LoadOnce(row + element);
}

// A part of the slots, all in use.
template <int kDim, bool kFull>
struct WholeRows {
  static constexpr int num_rows = kPartSlots<kDim>;
  const float* keys;
  const float* values;
  const int32_t* counts;
  int key_dim, value_dim;

  __device__ const float* Key(int row) const { return keys + row * (kFull ? kDim : key_dim); }
  __device__ const float* Value(int row) const { return values + row * (kFull ? kDim : value_dim); }
  __device__ float Count(int row) const { return static_cast<float>(counts[row]); }
};

// The last slots in use, or the chunk's tokens up to the one that is read. Rows beyond are the last
// one again, with no weight.
struct LastRows {
  const OvqKernelArgs& args;
  const Sequence& sequence;
  int head;
  int64_t slot;  // the first one's place among all; negative: the chunk
  int num_rows;

  __device__ const float* Key(int row) const {
    row = min(row, num_rows - 1);
    return slot < 0 ? ovq::KeyRow(args, sequence, head, row)
                    : args.states.keys + (slot + row) * args.key_dim;
  }
  __device__ const float* Value(int row) const {
    row = min(row, num_rows - 1);
    return slot < 0 ? ovq::ValueRow(args, sequence, head, row)
                    : args.states.values + (slot + row) * args.value_dim;
  }
  __device__ float Count(int row) const {
    if (row >= num_rows) return 0.0f;
    return slot < 0 ? 1.0f : static_cast<float>(args.states.counts[slot + row]);
  }
};

// One part of a read, streamed in batches of 8 kBatch rows: a tile's keys, then its values. The
// next batch is on its way while one is computed with.
template <int kDim, bool kFull, int kBatch, typename Rows>
class PartReader {
 public:
  __device__ PartReader(const uint32_t (&query)[kDim / 16][4], float logit_scale, const Rows& rows,
                        int key_dim, int value_dim, const Lane& lane)
      : query_(query),
        logit_scale_(logit_scale),
        rows_(rows),
        key_dim_(key_dim),
        value_dim_(value_dim),
        lane_(lane) {}

  __device__ void Read(float* out, float2* stats) {
    reads_.Clear();
    LoadKeys(0, buffers_[0]);
#pragma unroll 1
    for (int first = 0; first < rows_.num_rows; first += kTileSlots<kDim>) ReadTile(first);
    reads_.Finish();
    if (lane_.g != 0) return;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      out[(n >> 2) * 32 + 8 * lane_.t + (n & 3)] = reads_.out[n][0];
      out[(n >> 2) * 32 + 8 * lane_.t + 4 + (n & 3)] = reads_.out[n][1];
    }
    if (lane_.t == 0) *stats = make_float2(reads_.largest[0], reads_.weights[0]);
  }

 private:
  static constexpr int kColumns = kTileSlots<kDim> / 8;
  static constexpr int kBatches = kColumns / kBatch;

  struct Buffer {
    float4 rows[kBatch * kDim / 16];
    float biases[kBatch][2];
  };

  __device__ void LoadKeys(int first, Buffer& buffer) const {
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
      const float* row = rows_.Key(first + 8 * n + lane_.g);
#pragma unroll
      for (int step = 0; step < kDim / 16; ++step) {
        buffer.rows[n * (kDim / 16) + step] =
            LoadOnce<kFull>(row, 16 * step + 4 * lane_.t, key_dim_);
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        buffer.biases[n][e] = rows_.Count(first + 8 * n + 2 * lane_.t + e);
      }
    }
  }
  __device__ void LoadValues(int first, Buffer& buffer) const {
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float* row = rows_.Value(first + 8 * n + 2 * lane_.t + e);
#pragma unroll
        for (int group = 0; group < kDim / 32; ++group) {
          buffer.rows[(2 * n + e) * (kDim / 32) + group] =
              LoadOnce<kFull>(row, 32 * group + 4 * lane_.g, value_dim_);
        }
      }
    }
  }

  __device__ void ReadTile(int first) {
    float logits[kColumns][4] = {};
#pragma unroll
    for (int i = 0; i < 2 * kBatches; ++i) {
      Buffer& next = buffers_[(i + 1) & 1];
      if (i + 1 < kBatches) {
        LoadKeys(first + 8 * kBatch * (i + 1), next);
      } else if (i + 1 < 2 * kBatches) {
        LoadValues(first + 8 * kBatch * (i + 1 - kBatches), next);
      } else if (first + kTileSlots<kDim> < rows_.num_rows) {
        LoadKeys(first + kTileSlots<kDim>, next);
      }
      if (i < kBatches) {
        AddLogits(buffers_[i & 1], i * kBatch, logits);
      } else {
        AddValues(buffers_[i & 1], (i - kBatches) * kBatch, logits);
      }
      if (i == kBatches - 1) reads_.template Softmax<kColumns, 1>(logits);
    }
  }

  __device__ void AddLogits(const Buffer& buffer, int first, float (&logits)[kColumns][4]) const {
#pragma unroll
    for (int n = 0; n < kBatch; ++n) {
      float(&logit)[4] = logits[first + n];
#pragma unroll
      for (int step = 0; step < kDim / 16; ++step) {
        const float4 x = buffer.rows[n * (kDim / 16) + step];
        ovq::MmaHalf(logit, query_[step], ovq::PackHalves(x.x, x.y), ovq::PackHalves(x.z, x.w));
      }
      logit[0] = fmaf(logit_scale_, logit[0], ovq::Log2(buffer.biases[n][0]));
      logit[1] = fmaf(logit_scale_, logit[1], ovq::Log2(buffer.biases[n][1]));
    }
  }

  // Elements 32 group + 4 g .. + 3 of two neighbouring rows, as operands.
  static __device__ void PackRows(const Buffer& buffer, int n, int group, uint32_t (&pairs)[4]) {
    const float4 x = buffer.rows[2 * n * (kDim / 32) + group];
    const float4 y = buffer.rows[(2 * n + 1) * (kDim / 32) + group];
    pairs[0] = ovq::PackHalves(x.x, y.x);
    pairs[1] = ovq::PackHalves(x.y, y.y);
    pairs[2] = ovq::PackHalves(x.z, y.z);
    pairs[3] = ovq::PackHalves(x.w, y.w);
  }

  // The matrix unit takes 16 rows at once: where a batch has 8, every other one waits as halves.
  __device__ void AddValues(const Buffer& buffer, int first, const float (&weights)[kColumns][4]) {
#pragma unroll
    for (int n = kBatch == 1 ? 0 : 1; n < kBatch; n += 2) {
      const int column = first + n;
      if (column % 2 == 0) {
#pragma unroll
        for (int group = 0; group < kDim / 32; ++group) PackRows(buffer, n, group, waiting_[group]);
        continue;
      }
      const uint32_t a[4] = {ovq::PackHalves(weights[column - 1][0], weights[column - 1][1]), 0,
                             ovq::PackHalves(weights[column][0], weights[column][1]), 0};
#pragma unroll
      for (int group = 0; group < kDim / 32; ++group) {
        uint32_t pairs[4];
        PackRows(buffer, n, group, pairs);
        if constexpr (kBatch > 1) PackRows(buffer, n - 1, group, waiting_[group]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          ovq::MmaHalf(reads_.out[4 * group + i], a, waiting_[group][i], pairs[i]);
        }
      }
    }
  }

  const uint32_t (&query_)[kDim / 16][4];
  const float logit_scale_;
  const Rows& rows_;
  const int key_dim_;
  const int value_dim_;
  const Lane lane_;
  Buffer buffers_[2];
  uint32_t waiting_[kDim / 32][4];
  Reads<kDim> reads_;
};

// Element `dim` of a read from its parts, of which the last is the chunk.
template <int kDim>
__device__ float JoinParts(const float* outs, const float2* stats, int num_parts, int dim) {
  float largest = stats[num_parts].x;
  float weights = stats[num_parts].y;
  float out = outs[num_parts * kDim + dim];
  for (int part = 0; part < num_parts; ++part) {
    const ovq::JoinScale scale = ovq::ScaleJoin(largest, stats[part].x);
    largest = scale.largest;
    weights = ovq::Join(scale, weights, stats[part].y);
    out = ovq::Join(scale, out, outs[part * kDim + dim]);
  }
  return __fdiv_rn(out, weights);
}

template <int kDim>
__device__ void StoreRead(const OvqKernelArgs& args, const Sequence& sequence, int head,
                          const float* outs, const float2* stats, int num_parts) {
  for (int dim = static_cast<int>(threadIdx.x); dim < args.value_dim;
       dim += static_cast<int>(blockDim.x)) {
    ovq::OutRow(args, sequence, head, sequence.pending)[dim] =
        JoinParts<kDim>(outs, stats, num_parts, dim);
  }
}

// Where the parts of a read go when its head is split over blocks.
template <int kDim>
__device__ float* PartOuts(const OvqKernelArgs& args, int sequence_index, int head) {
  const int64_t chain = static_cast<int64_t>(sequence_index) * args.num_heads + head;
  return args.parts + chain * (args.num_parts + 1) * kDim;
}
__device__ float2* PartStats(const OvqKernelArgs& args, int sequence_index, int head) {
  const int64_t chain = static_cast<int64_t>(sequence_index) * args.num_heads + head;
  return reinterpret_cast<float2*>(args.part_stats) + chain * (args.num_parts + 1);
}

// The token joins the pending ones; where it fills the chunk, the merge reads it from the call.
__device__ void KeepPending(const OvqKernelArgs& args, const Sequence& sequence, int head) {
  const int64_t row =
      (sequence.state * args.num_heads + head) * args.chunk_tokens + sequence.pending;
  const float* key = ovq::KeyRow(args, sequence, head, sequence.pending);
  const float* value = ovq::ValueRow(args, sequence, head, sequence.pending);
  const int threads = static_cast<int>(blockDim.x);
  for (int i = static_cast<int>(threadIdx.x); i < args.key_dim; i += threads) {
    args.states.pending_keys[row * args.key_dim + i] = key[i];
  }
  for (int i = static_cast<int>(threadIdx.x); i < args.value_dim; i += threads) {
    args.states.pending_values[row * args.value_dim + i] = value[i];
  }
}

// Grid: (blocks of a head, heads, sequences); warps take the parts of a read in turn.
template <int kDim, bool kFull, int kBatch, int kWarps, int kBlocks>
__global__ void __launch_bounds__(kWarps * 32, kBlocks)
    OvqStepKernel(const __grid_constant__ OvqKernelArgs args) {
  extern __shared__ uint4 shared_memory[];
  const int sequence_index = static_cast<int>(blockIdx.z);
  const int head = static_cast<int>(blockIdx.y);
  const Sequence sequence = GetSequence(args, sequence_index);
  if (sequence.length != 1) return;
  const int num_filled = ovq::FilledBefore(args, sequence, 0);
  const int num_parts = (num_filled + kPartSlots<kDim> - 1) / kPartSlots<kDim>;
  const bool is_alone = gridDim.x == 1;
  float* outs = is_alone ? reinterpret_cast<float*>(shared_memory)
                         : PartOuts<kDim>(args, sequence_index, head);
  float2* stats = is_alone ? reinterpret_cast<float2*>(outs + (args.num_parts + 1) * kDim)
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
  for (int part = static_cast<int>(blockIdx.x) * num_warps + warp; part <= num_parts;
       part += static_cast<int>(gridDim.x) * num_warps) {
    const int first = part * kPartSlots<kDim>;
    if (first + kPartSlots<kDim> <= num_filled) {
      using Rows = WholeRows<kDim, kFull>;
      const Rows rows{args.states.keys + (state + first) * key_dim,
                      args.states.values + (state + first) * value_dim,
                      args.states.counts + state + first, key_dim, value_dim};
      PartReader<kDim, kFull, kBatch, Rows>(query, logit_scale, rows, key_dim, value_dim, lane)
          .Read(outs + part * kDim, stats + part);
    } else {
      const bool is_chunk = part == num_parts;
      const LastRows rows{args, sequence, head, is_chunk ? -1 : state + first,
                          is_chunk ? sequence.pending + 1 : num_filled - first};
      PartReader<kDim, kFull, 1, LastRows>(query, logit_scale, rows, key_dim, value_dim, lane)
          .Read(outs + part * kDim, stats + part);
    }
  }
  if (blockIdx.x == 0 && sequence.num_merges == 0) KeepPending(args, sequence, head);
  if (!is_alone) return;
  __syncthreads();
  StoreRead<kDim>(args, sequence, head, outs, stats, num_parts);
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
                  (num_filled + kPartSlots<kDim> - 1) / kPartSlots<kDim>);
}

template <int kDim, bool kFull, int kBatch, int kWarps, int kBlocks>
absl::Status Launch(Queue* queue, const OvqKernelArgs& args, int64_t max_filled) {
  const auto heads = static_cast<unsigned>(args.num_heads);
  const auto sequences = static_cast<unsigned>(args.num_sequences);
  const int num_parts = args.num_parts + 1;
  const auto max_parts =
      static_cast<int>((max_filled + kPartSlots<kDim> - 1) / kPartSlots<kDim>) + 1;
  const bool is_alone = args.num_heads * args.num_sequences >= 2 * queue->num_multiprocessors() &&
                        num_parts <= kMaxSharedParts;
  const int warps = is_alone ? kWarps : kSplitWarps;
  const int blocks = is_alone ? 1 : std::max(2, (max_parts + warps - 1) / warps);
  const auto kernel = &OvqStepKernel<kDim, kFull, kBatch, kWarps, kBlocks>;
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
    return is_full ? Launch<64, true, 2, 2, 6>(queue, args, max_filled)
                   : Launch<64, false, 1, 2, 6>(queue, args, max_filled);
  }
  return is_full ? Launch<128, true, 1, 4, 2>(queue, args, max_filled)
                 : Launch<128, false, 1, 4, 2>(queue, args, max_filled);
}

}  // namespace lethe
