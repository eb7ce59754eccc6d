// The reads of a prefill against the slots, after the merges of a segment have been logged: a block
// holds a unit of slots in shared memory and takes it through the segment's chunks, following the
// log. No block waits for another.
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
using ovq::PartialTile;
using ovq::Reads;
using ovq::ReadTile;
using ovq::Sequence;
using ovq::ThisLane;

template <int kDim>
struct ReadShared {
  // Of a tile of tokens: what the warp of the second half of the unit sends to that of the first.
  float4 exchange[8][kDim / 8][32];
  float2 stats[8][kOvqTileTokens];
  float biases[kUnitSlots<kDim>];
  int num_filled[kOvqMaxSegmentChunks + 4];  // before each chunk of the segment and after the last
  float values[kUnitSlots<kDim> * kDim];
  uint16_t keys[kUnitSlots<kDim> * kDim];
};

// Copies log or dictionary rows into the unit.
template <int kDim>
__device__ void CopyPiece(const uint16_t* key_row, const float* value_row, int local, int piece,
                          ReadShared<kDim>* shared) {
  if (piece < kDim / 8) {
    *reinterpret_cast<uint4*>(shared->keys + ovq::SharedKey<kDim>(local, piece)) =
        *reinterpret_cast<const uint4*>(key_row + 8 * piece);
  } else {
    const int dim = 4 * (piece - kDim / 8);
    ovq::StoreSharedValues<kDim>(shared->values, local, dim,
                                 *reinterpret_cast<const float4*>(value_row + dim));
  }
}

// By one block; a warp reads a tile of 16 tokens against half of the unit.
template <int kDim>
class UnitReader {
 public:
  static constexpr int kPieces = kDim / 8 + kDim / 4;  // 16 bytes each, of a slot
  static constexpr int kHalfSlots = kUnitSlots<kDim> / 2;

  __device__ UnitReader(const OvqKernelArgs& args, const Sequence& sequence, int sequence_index,
                        int head, int unit, ReadShared<kDim>* shared)
      : args_(args),
        sequence_(sequence),
        sequence_index_(sequence_index),
        head_(head),
        unit_(unit),
        first_slot_(unit * kUnitSlots<kDim>),
        shared_(*shared),
        warp_(static_cast<int>(threadIdx.x) >> 5),
        num_warps_(static_cast<int>(blockDim.x) >> 5),
        group_(warp_ % (num_warps_ / 2)),
        half_(warp_ / (num_warps_ / 2)),
        lane_(ThisLane()) {}

  __device__ void Load(int num_filled) {
    const int num_slots = num_filled - first_slot_;  // may be negative
    const int64_t row = DictionaryRow(args_, sequence_index_, head_, first_slot_);
    const int threads = static_cast<int>(blockDim.x);
    for (int i = static_cast<int>(threadIdx.x); i < kUnitSlots<kDim>; i += threads) {
      shared_.biases[i] = i < num_slots ? args_.dictionary_biases[row + i] : -ovq::Infinity();
    }
    for (int i = static_cast<int>(threadIdx.x); i < kUnitSlots<kDim> * kPieces; i += threads) {
      const int local = i / kPieces;
      const int piece = i % kPieces;
      if (local < num_slots) {
        CopyPiece<kDim>(args_.dictionary_keys + (row + local) * kDim,
                        args_.dictionary_values + (row + local) * kDim, local, piece, &shared_);
      } else if (piece < kDim / 8) {
        *reinterpret_cast<uint4*>(shared_.keys + ovq::SharedKey<kDim>(local, piece)) =
            make_uint4(0, 0, 0, 0);
      } else {
        ovq::StoreSharedValues<kDim>(shared_.values, local, 4 * (piece - kDim / 8),
                                     make_float4(0.0f, 0.0f, 0.0f, 0.0f));
      }
    }
    __syncthreads();
  }

  // The next chunk's queries: a line or two for each thread.
  __device__ void WarmQueries(int chunk, float (&warm)[kDim / 64]) const {
    const int index = static_cast<int>(threadIdx.x) >> 1;
    const bool is_token = index < args_.chunk_tokens;
    const int line = static_cast<int>(threadIdx.x) & 1;
    const float* row = ovq::QueryRow(args_, sequence_, head_, chunk * args_.chunk_tokens + index);
#pragma unroll
    for (int i = 0; i < kDim / 64; ++i) {
      const int element = 64 * i + 32 * line;
      warm[i] =
          is_token && row != nullptr && element < args_.key_dim ? ovq::Warm(row + element) : 0.0f;
    }
  }

  template <bool kFull>
  __device__ void ReadChunk(int chunk, int num_filled, float logit_scale) {
    uint32_t queries[kDim / 16][4];
    const int token = chunk * args_.chunk_tokens + 16 * group_ + lane_.g;
    ovq::LoadOperand<kDim, kFull>(ovq::QueryRow(args_, sequence_, head_, token),
                                  ovq::QueryRow(args_, sequence_, head_, token + 8), args_.key_dim,
                                  lane_.t, queries);
    Reads<kDim> reads;
    reads.Clear();
    const int first_row = half_ * kHalfSlots;
    const int num_rows = min(kHalfSlots, num_filled - first_slot_ - first_row);
#pragma unroll 1
    for (int row = 0; row < num_rows; row += kTileSlots<kDim>) {
      ReadTile<kDim>(
          queries, logit_scale, shared_.keys, shared_.values, first_row + row, lane_,
          [&](int column, int) {
            return *reinterpret_cast<const float2*>(&shared_.biases[column]);
          },
          &reads);
    }
    reads.Finish();
    if (half_ != 0) Send(reads);
    asm volatile("bar.sync %0, 64;" ::"r"(1 + group_) : "memory");
    if (half_ != 0) return;
    JoinAndStore(reads, PartialTile(args_, sequence_index_, head_, chunk, unit_) + group_);
  }

  // Which slots a chunk's merge changes, at the places of tokens lane, lane + 32, ...
  __device__ void LoadLog(int chunk, int (&slots)[4]) const {
    const int64_t log = LogRow(chunk);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      slots[i] = 32 * i < args_.chunk_tokens ? args_.log_slots[log + 32 * i + lane_.index] : -1;
    }
  }

  // Takes those over, here and in the dictionary.
  __device__ void FollowLog(int chunk, const int (&slots)[4]) {
    __syncthreads();  // everybody has read
    const int64_t log = LogRow(chunk);
    uint64_t rest[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t low = __ballot_sync(0xffffffffu, IsHere(slots[2 * i]));
      const uint32_t high = __ballot_sync(0xffffffffu, IsHere(slots[2 * i + 1]));
      rest[i] = low | static_cast<uint64_t>(high) << 32;
    }
    // Warps take places in turn.
    const uint64_t mine = (num_warps_ == 16 ? 0x0001000100010001u : 0x0101010101010101u) << warp_;
    rest[0] &= mine;
    rest[1] &= mine;
#pragma unroll 1
    while ((rest[0] | rest[1]) != 0) {
      const int first = TakePlace(rest);
      CopyLogged(log, first, (rest[0] | rest[1]) != 0 ? TakePlace(rest) : -1);
    }
    __syncthreads();
  }

 private:
  __device__ int64_t LogRow(int chunk) const {
    const int64_t chain = static_cast<int64_t>(sequence_index_) * args_.num_heads + head_;
    return (chain * args_.segment_chunks + chunk - args_.first_chunk) * args_.chunk_tokens;
  }

  __device__ bool IsHere(int slot) const {
    return slot >= first_slot_ && slot < first_slot_ + kUnitSlots<kDim>;
  }

  // Takes the lowest bit.
  __device__ static int TakePlace(uint64_t (&rest)[2]) {
    const bool is_high = rest[0] == 0;
    const uint64_t word = is_high ? rest[1] : rest[0];
    rest[0] &= rest[0] - 1;  // 0 stays 0
    if (is_high) rest[1] &= rest[1] - 1;
    return __ffsll(static_cast<long long>(word)) - 1 + (is_high ? 64 : 0);
  }

  // Two logged rows, of which the second may be missing (negative), by one warp.
  __device__ void CopyLogged(int64_t log, int first, int second) {
    const int64_t from[2] = {log + first, log + max(second, first)};
    int local[2];
    float bias[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      local[i] = args_.log_slots[from[i]] - first_slot_;
      bias[i] = args_.log_biases[from[i]];
    }
#pragma unroll
    for (int piece = lane_.index; piece < (kPieces + 31) / 32 * 32; piece += 32) {
      if (piece >= kPieces) break;
      uint4 rows[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        rows[i] = piece < kDim / 8
                      ? *reinterpret_cast<const uint4*>(args_.log_keys + from[i] * kDim + 8 * piece)
                      : *reinterpret_cast<const uint4*>(args_.log_values + from[i] * kDim +
                                                        4 * (piece - kDim / 8));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t to = DictionaryRow(args_, sequence_index_, head_, first_slot_ + local[i]);
        if (piece < kDim / 8) {
          *reinterpret_cast<uint4*>(shared_.keys + ovq::SharedKey<kDim>(local[i], piece)) = rows[i];
          *reinterpret_cast<uint4*>(args_.dictionary_keys + to * kDim + 8 * piece) = rows[i];
        } else {
          const int dim = 4 * (piece - kDim / 8);
          ovq::StoreSharedValues<kDim>(
              shared_.values, local[i], dim,
              make_float4(__uint_as_float(rows[i].x), __uint_as_float(rows[i].y),
                          __uint_as_float(rows[i].z), __uint_as_float(rows[i].w)));
          *reinterpret_cast<uint4*>(args_.dictionary_values + to * kDim + dim) = rows[i];
        }
      }
    }
    if (lane_.index >= 2) return;
    const int i = second < 0 ? 0 : lane_.index;
    shared_.biases[i == 0 ? local[0] : local[1]] = i == 0 ? bias[0] : bias[1];
    args_.dictionary_biases[DictionaryRow(args_, sequence_index_, head_,
                                          first_slot_ + (i == 0 ? local[0] : local[1]))] =
        i == 0 ? bias[0] : bias[1];
  }

  __device__ void Send(const Reads<kDim>& reads) {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      shared_.exchange[group_][n][lane_.index] =
          make_float4(reads.out[n][0], reads.out[n][1], reads.out[n][2], reads.out[n][3]);
    }
    if (lane_.t == 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        shared_.stats[group_][8 * r + lane_.g] = make_float2(reads.largest[r], reads.weights[r]);
      }
    }
  }

  // `reads` is of the first half of the unit, what the partner has sent of the second.
  __device__ void JoinAndStore(const Reads<kDim>& reads, int64_t tile) {
    ovq::PairScale scales[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float2 second = shared_.stats[group_][8 * r + lane_.g];
      scales[r] = ovq::ScalePair(reads.largest[r], second.x);
      if (lane_.t == 0) {
        reinterpret_cast<float2*>(args_.partial_stats)[tile * kOvqTileTokens + 8 * r + lane_.g] =
            make_float2(scales[r].largest, ovq::Join(scales[r], reads.weights[r], second.y));
      }
    }
    auto* out = reinterpret_cast<float4*>(args_.partials) + tile * (kDim / 8) * 32;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const float4 second = shared_.exchange[group_][n][lane_.index];
      out[n * 32 + lane_.index] = make_float4(ovq::Join(scales[0], reads.out[n][0], second.x),
                                              ovq::Join(scales[0], reads.out[n][1], second.y),
                                              ovq::Join(scales[1], reads.out[n][2], second.z),
                                              ovq::Join(scales[1], reads.out[n][3], second.w));
    }
  }

  const OvqKernelArgs& args_;
  const Sequence& sequence_;
  const int sequence_index_;
  const int head_;
  const int unit_;
  const int first_slot_;
  ReadShared<kDim>& shared_;
  const int warp_;
  const int num_warps_;
  const int group_;  // tile of tokens
  const int half_;   // of the unit
  const Lane lane_;
};

// Grid: (units, heads, sequences); 4 L threads; shared memory: ReadShared.
template <int kDim, bool kFull>
__global__ void __launch_bounds__(512, 1)
    OvqReadKernel(const __grid_constant__ OvqKernelArgs args) {
  extern __shared__ uint4 shared_memory[];
  const int sequence_index = static_cast<int>(blockIdx.z);
  const int head = static_cast<int>(blockIdx.y);
  const int unit = static_cast<int>(blockIdx.x);
  const Sequence sequence = GetSequence(args, sequence_index);
  const int last = min(args.first_chunk + args.segment_chunks, sequence.num_chunks);
  if (!IsPrefill(sequence) || args.first_chunk >= last) return;
  const int first_slot = unit * kUnitSlots<kDim>;
  if (ovq::FilledBefore(args, sequence, last) <= first_slot) return;
  const float logit_scale = args.inputs.logit_scales[head] * ovq::kLog2E;
  UnitReader<kDim> reader(args, sequence, sequence_index, head, unit,
                          reinterpret_cast<ReadShared<kDim>*>(shared_memory));
  int* all_filled = reinterpret_cast<ReadShared<kDim>*>(shared_memory)->num_filled;
  for (int i = static_cast<int>(threadIdx.x); i <= last - args.first_chunk;
       i += static_cast<int>(blockDim.x)) {
    all_filled[i] = ovq::FilledBefore(args, sequence, args.first_chunk + i);
  }
  reader.Load(ovq::FilledBefore(args, sequence, args.first_chunk));  // also waits for the above
  for (int chunk = args.first_chunk; chunk < last; ++chunk) {
    const int num_filled = all_filled[chunk - args.first_chunk];
    const bool is_changed =
        chunk < sequence.num_merges && all_filled[chunk - args.first_chunk + 1] > first_slot;
    if (!is_changed && num_filled <= first_slot) continue;  // the unit is empty and stays so
    int changed[4];
    if (is_changed) reader.LoadLog(chunk, changed);
    float warm[kDim / 64];
    reader.WarmQueries(chunk + 1, warm);
    if (num_filled > first_slot) {
      reader.template ReadChunk<kFull>(chunk, num_filled, logit_scale);
    }
#pragma unroll
    for (float line : warm) ovq::Warmed(line);
    if (is_changed) reader.FollowLog(chunk, changed);
  }
}
template <int kDim, bool kFull>
absl::Status LaunchRead(Queue* queue, const OvqKernelArgs& args) {
  const int tokens = args.chunk_tokens;
  const auto heads = static_cast<unsigned>(args.num_heads);
  const auto sequences = static_cast<unsigned>(args.num_sequences);
  constexpr int kReadBytes = sizeof(ReadShared<kDim>);
  const auto read_kernel = &OvqReadKernel<kDim, kFull>;
  cudaFuncSetAttribute(read_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kReadBytes);
  read_kernel<<<dim3(static_cast<unsigned>(args.num_units), heads, sequences), 4 * tokens,
                kReadBytes, queue->stream()>>>(args);
  return queue->LaunchStatus("OvqReadKernel");
}

}  // namespace

absl::Status OvqLaunchRead(Queue* queue, const OvqKernelArgs& args, int dim) {
  const bool is_full = args.key_dim == dim && args.value_dim == dim;
  if (dim == 64) {
    return is_full ? LaunchRead<64, true>(queue, args) : LaunchRead<64, false>(queue, args);
  }
  return is_full ? LaunchRead<128, true>(queue, args) : LaunchRead<128, false>(queue, args);
}

}  // namespace lethe
