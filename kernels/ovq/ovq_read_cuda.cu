// The reads of a prefill against the slots, after the merges of a segment have been logged: a block
// holds a unit of slots in shared memory and takes it through the segment's chunks, following the
// log. No block waits for another.
#include <cstdlib>

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
  // By warp: a tile's sums over half a unit. Where a warp has one tile only the second half's send.
  float4 exchange[8][kDim / 8][32];
  float2 stats[8][kOvqTileTokens];
  float biases[kUnitSlots<kDim>];
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

// A warp takes care of kTiles tiles of tokens: two halve the reads of shared memory, one leaves
// registers for twice as many warps.
template <int kDim, int kTiles>
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
    const int num_groups = num_warps_ / 2;
    const int group = warp_ % num_groups;  // of kTiles tiles of tokens
    const int half = warp_ / num_groups;
    uint32_t queries[kTiles][kDim / 16][4];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const int token = chunk * args_.chunk_tokens + 16 * (kTiles * group + m) + lane_.g;
      ovq::LoadOperand<kDim, kFull>(ovq::QueryRow(args_, sequence_, head_, token),
                                    ovq::QueryRow(args_, sequence_, head_, token + 8),
                                    args_.key_dim, lane_.t, queries[m]);
    }
    Reads<kDim> reads[kTiles];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) reads[m].Clear();
    const int last = min(kHalfSlots, num_filled - first_slot_ - half * kHalfSlots);
#pragma unroll 1
    for (int first = 0; first < last; first += kTileSlots<kDim>) {
      ReadTile<kDim, kTiles>(
          queries, logit_scale, shared_.keys, shared_.values, half * kHalfSlots + first, lane_,
          [&](int column, int) {
            return *reinterpret_cast<const float2*>(&shared_.biases[column]);
          },
          reads);
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) reads[m].Finish();
    const bool is_first = half == 0;
    const int partner = is_first ? warp_ + num_groups : warp_ - num_groups;
    const int64_t tile = PartialTile(args_, sequence_index_, head_, chunk, unit_) + kTiles * group;
    if constexpr (kTiles == 2) {
      // Each warp hands one tile over to the other half's warp and joins the other.
      Select(is_first, &reads[0], &reads[1]);
      Send(reads[1]);
    } else {
      if (!is_first) Send(reads[0]);
    }
    asm volatile("bar.sync %0, 64;" ::"r"(1 + group) : "memory");
    if (kTiles == 2) {
      JoinAndStore(is_first, reads[0], partner, tile + half);
    } else if (is_first) {
      JoinAndStore(true, reads[0], partner, tile);
    }
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
    int place = NextPlace(rest, warp_);
#pragma unroll 1
    while (place >= 0) {
      const int second = NextPlace(rest, num_warps_ - 1);
      CopyLogged(log, place, second);
      place = second < 0 ? -1 : NextPlace(rest, num_warps_ - 1);
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

  // Takes the lowest bit after `skipped` others; -1 where there are not so many.
  __device__ static int NextPlace(uint64_t (&rest)[2], int skipped) {
    int place = -1;
#pragma unroll 1
    for (int i = 0; i <= skipped; ++i) {
      if (rest[0] != 0) {
        place = __ffsll(static_cast<long long>(rest[0])) - 1;
        rest[0] &= rest[0] - 1;
      } else if (rest[1] != 0) {
        place = 63 + __ffsll(static_cast<long long>(rest[1]));
        rest[1] &= rest[1] - 1;
      } else {
        return -1;
      }
    }
    return place;
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

  __device__ int Place(int warp) const { return kTiles == 2 ? warp : warp % (num_warps_ / 2); }

  __device__ void Send(const Reads<kDim>& reads) {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      shared_.exchange[Place(warp_)][n][lane_.index] =
          make_float4(reads.out[n][0], reads.out[n][1], reads.out[n][2], reads.out[n][3]);
    }
    if (lane_.t == 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        shared_.stats[Place(warp_)][8 * r + lane_.g] =
            make_float2(reads.largest[r], reads.weights[r]);
      }
    }
  }

  // Swaps the two where `is_first` is false: the first one is what the warp keeps.
  __device__ static void Select(bool is_first, Reads<kDim>* kept, Reads<kDim>* sent) {
    const auto swap = [&](float& x, float& y) {
      const float z = is_first ? x : y;
      y = is_first ? y : x;
      x = z;
    };
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      swap(kept->largest[r], sent->largest[r]);
      swap(kept->weights[r], sent->weights[r]);
    }
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) swap(kept->out[n][e], sent->out[n][e]);
    }
  }

  // `reads` is of the first half of the unit, the partner's of the second, or the other way round.
  __device__ void JoinAndStore(bool is_first, const Reads<kDim>& reads, int partner, int64_t tile) {
    float mine[2];
    float theirs[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float2 other = shared_.stats[Place(partner)][8 * r + lane_.g];
      const ovq::PairScale scale = is_first ? ovq::ScalePair(reads.largest[r], other.x)
                                            : ovq::ScalePair(other.x, reads.largest[r]);
      const float weights = is_first ? ovq::Join(scale, reads.weights[r], other.y)
                                     : ovq::Join(scale, other.y, reads.weights[r]);
      mine[r] = is_first ? scale.first : scale.second;
      theirs[r] = is_first ? scale.second : scale.first;
      if (lane_.t == 0) {
        reinterpret_cast<float2*>(args_.partial_stats)[tile * kOvqTileTokens + 8 * r + lane_.g] =
            make_float2(scale.largest, weights);
      }
    }
    auto* out = reinterpret_cast<float4*>(args_.partials) + tile * (kDim / 8) * 32;
    // ovq::Join multiplies the first half's by its scale and adds the second's in one fma.
    const auto join = [&](float x, float y, int r) {
      const float product = is_first ? mine[r] * x : theirs[r] * y;
      return is_first ? fmaf(theirs[r], y, product) : fmaf(mine[r], x, product);
    };
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const float4 other = shared_.exchange[Place(partner)][n][lane_.index];
      out[n * 32 + lane_.index] =
          make_float4(join(reads.out[n][0], other.x, 0), join(reads.out[n][1], other.y, 0),
                      join(reads.out[n][2], other.z, 1), join(reads.out[n][3], other.w, 1));
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
  const Lane lane_;
};

// Grid: (units, heads, sequences); a warp for kTiles tiles of tokens and half a unit; shared
// memory: ReadShared.
template <int kDim, bool kFull, int kTiles>
__global__ void __launch_bounds__(512 / kTiles, 1)
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
  UnitReader<kDim, kTiles> reader(args, sequence, sequence_index, head, unit,
                                  reinterpret_cast<ReadShared<kDim>*>(shared_memory));
  reader.Load(ovq::FilledBefore(args, sequence, args.first_chunk));
  for (int chunk = args.first_chunk; chunk < last; ++chunk) {
    const int num_filled = ovq::FilledBefore(args, sequence, chunk);
    int changed[4];
    if (chunk < sequence.num_merges) reader.LoadLog(chunk, changed);
    float warm[kDim / 64];
    reader.WarmQueries(chunk + 1, warm);
    if (num_filled > first_slot) {
      reader.template ReadChunk<kFull>(chunk, num_filled, logit_scale);
    }
#pragma unroll
    for (float line : warm) ovq::Warmed(line);
    if (chunk < sequence.num_merges) reader.FollowLog(chunk, changed);
  }
}
template <int kDim, bool kFull, int kTiles>
absl::Status LaunchRead(Queue* queue, const OvqKernelArgs& args) {
  const int tokens = args.chunk_tokens;
  const auto heads = static_cast<unsigned>(args.num_heads);
  const auto sequences = static_cast<unsigned>(args.num_sequences);
  constexpr int kReadBytes = sizeof(ReadShared<kDim>);
  const auto read_kernel = &OvqReadKernel<kDim, kFull, kTiles>;
  cudaFuncSetAttribute(read_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kReadBytes);
  read_kernel<<<dim3(static_cast<unsigned>(args.num_units), heads, sequences), 4 * tokens / kTiles,
                kReadBytes, queue->stream()>>>(args);
  return queue->LaunchStatus("OvqReadKernel");
}

}  // namespace

absl::Status OvqLaunchRead(Queue* queue, const OvqKernelArgs& args, int dim) {
  const bool is_full = args.key_dim == dim && args.value_dim == dim;
  const char* v = std::getenv("OVQ_TILES");
  if (v != nullptr && is_full && dim == 64) return LaunchRead<64, true, 2>(queue, args);
  if (v != nullptr && is_full && dim == 128) return LaunchRead<128, true, 1>(queue, args);
  if (dim == 64) {
    return is_full ? LaunchRead<64, true, 1>(queue, args) : LaunchRead<64, false, 1>(queue, args);
  }
  return is_full ? LaunchRead<128, true, 2>(queue, args) : LaunchRead<128, false, 2>(queue, args);
}

}  // namespace lethe
