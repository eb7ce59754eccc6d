// The reads of a prefill, after the merges of a segment have been logged: OvqDictionaryKernel makes
// the slots of the call's start as the reads see them, OvqReadKernel lets each unit of slots go
// through the segment's chunks, following the log, OvqChunkKernel adds each chunk's own tokens and
// joins the units.
#include <cuda_runtime.h>

#include "kernels/base/status_macros.h"
#include "kernels/ovq/ovq_cuda.cuh"

namespace lethe {
namespace {

using ovq::GetSequence;
using ovq::kTileSlots;
using ovq::Lane;
using ovq::LoadRow;
using ovq::Reads;
using ovq::Sequence;
using ovq::ThisLane;

template <int kDim>
constexpr int kUnitSlots = kOvqUnitElements / kDim;

// Reads of one token come through OvqLaunchStep.
__device__ bool IsPrefill(const Sequence& sequence) { return sequence.length > 1; }

__device__ int64_t DictionaryRow(const OvqKernelArgs& args, int sequence_index, int head,
                                 int slot) {
  return (static_cast<int64_t>(sequence_index) * args.num_heads + head) * args.capacity + slot;
}

// The first of the unit's partials for a chunk, in tiles.
__device__ int64_t PartialTile(const OvqKernelArgs& args, int sequence_index, int head, int chunk,
                               int unit) {
  const int64_t chain = static_cast<int64_t>(sequence_index) * args.num_heads + head;
  const int64_t row = (chain * args.segment_chunks + chunk - args.first_chunk) * args.num_units;
  return (row + unit) * (args.chunk_tokens / kOvqTileTokens);
}

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

// A tile of kTileSlots rows in shared memory against kTiles tiles of 16 tokens. bias(column, r) is the
// pair of biases of the slots at column and column + 1 for the token of row 8 r + g.
template <int kDim, int kTiles, typename Bias>
__device__ void ReadTile(const uint32_t (&queries)[kTiles][kDim / 16][4], float logit_scale,
                         const uint16_t* keys, const float* values, int first, const Lane& lane,
                         const Bias& bias, Reads<kDim> (&reads)[kTiles]) {
  constexpr int kColumns = kTileSlots<kDim> / 8;
  const ovq::KeyLane<kDim> key_lane(keys, first, lane);
  const ovq::ValueLane<kDim> value_lane(values, first, lane);
  float logits[kTiles][kColumns][4] = {};
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int pair = 0; pair < kDim / 32; ++pair) {
      const uint4 b = key_lane.Load(n, pair);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        ovq::MmaHalf(logits[m][n], queries[m][2 * pair], b.x, b.y);
        ovq::MmaHalf(logits[m][n], queries[m][2 * pair + 1], b.z, b.w);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float2 two = bias(first + 8 * n + 2 * lane.t, r);
        logits[m][n][2 * r] = fmaf(logit_scale, logits[m][n][2 * r], two.x);
        logits[m][n][2 * r + 1] = fmaf(logit_scale, logits[m][n][2 * r + 1], two.y);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kTiles; ++m) reads[m].template Softmax<kColumns, 2>(logits[m]);
#pragma unroll
  for (int n = 0; n < kColumns; ++n) {
    uint32_t a[kTiles][4];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) ovq::WeightOperand(logits[m][n], a[m]);
#pragma unroll
    for (int group = 0; group < kDim / 32; ++group) {
      const uint4 b0 = value_lane.Load(n, 0, group);
      const uint4 b1 = value_lane.Load(n, 1, group);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        ovq::MmaTf32(reads[m].out[4 * group], a[m], b0.x, b1.x);
        ovq::MmaTf32(reads[m].out[4 * group + 1], a[m], b0.y, b1.y);
        ovq::MmaTf32(reads[m].out[4 * group + 2], a[m], b0.z, b1.z);
        ovq::MmaTf32(reads[m].out[4 * group + 3], a[m], b0.w, b1.w);
      }
    }
  }
}

template <int kDim>
struct ReadShared {
  float4 exchange[8][kDim / 8][32];  // by warp: 16 tokens' sums over half a unit
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
    *reinterpret_cast<float4*>(shared->values + ovq::SharedValue<kDim>(local, dim)) =
        *reinterpret_cast<const float4*>(value_row + dim);
  }
}

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
        *reinterpret_cast<float4*>(shared_.values +
                                   ovq::SharedValue<kDim>(local, 4 * (piece - kDim / 8))) =
            make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
    }
    __syncthreads();
  }

  // The next chunk's queries: a line or two for each thread.
  __device__ void WarmQueries(int chunk, float (&warm)[kDim / 64]) const {
    const int index = static_cast<int>(threadIdx.x) >> 1;
    const int line = static_cast<int>(threadIdx.x) & 1;
    const float* row = ovq::QueryRow(args_, sequence_, head_, chunk * args_.chunk_tokens + index);
#pragma unroll
    for (int i = 0; i < kDim / 64; ++i) {
      const int element = 64 * i + 32 * line;
      warm[i] = row != nullptr && element < args_.key_dim ? ovq::Warm(row + element) : 0.0f;
    }
  }

  template <bool kFull>
  __device__ void ReadChunk(int chunk, int num_filled, float logit_scale) {
    const int num_groups = num_warps_ / 2;
    const int group = warp_ % num_groups;  // of 32 tokens
    const int half = warp_ / num_groups;
    uint32_t queries[2][kDim / 16][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const int token = chunk * args_.chunk_tokens + 32 * group + 16 * m + lane_.g;
      ovq::LoadOperand<kDim, kFull>(ovq::QueryRow(args_, sequence_, head_, token),
                                    ovq::QueryRow(args_, sequence_, head_, token + 8),
                                    args_.key_dim, lane_.t, queries[m]);
    }
    Reads<kDim> reads[2];
    reads[0].Clear();
    reads[1].Clear();
    const int last = min(kHalfSlots, num_filled - first_slot_ - half * kHalfSlots);
#pragma unroll 1
    for (int first = 0; first < last; first += kTileSlots<kDim>) {
      ReadTile<kDim, 2>(
          queries, logit_scale, shared_.keys, shared_.values, half * kHalfSlots + first, lane_,
          [&](int column, int) {
            return *reinterpret_cast<const float2*>(&shared_.biases[column]);
          },
          reads);
    }
    reads[0].Finish();
    reads[1].Finish();
    // Each warp hands one tile of tokens over to the other half's warp and joins the other.
    const bool is_first = half == 0;
    Select(is_first, &reads[0], &reads[1]);
    Send(reads[1]);
    const int partner = is_first ? warp_ + num_groups : warp_ - num_groups;
    asm volatile("bar.sync %0, 64;" ::"r"(1 + group) : "memory");
    JoinAndStore(is_first, reads[0], partner,
                 PartialTile(args_, sequence_index_, head_, chunk, unit_) + 2 * group + half);
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
          *reinterpret_cast<uint4*>(shared_.values + ovq::SharedValue<kDim>(local[i], dim)) =
              rows[i];
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
      shared_.exchange[warp_][n][lane_.index] =
          make_float4(reads.out[n][0], reads.out[n][1], reads.out[n][2], reads.out[n][3]);
    }
    if (lane_.t == 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        shared_.stats[warp_][8 * r + lane_.g] = make_float2(reads.largest[r], reads.weights[r]);
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
      const float2 other = shared_.stats[partner][8 * r + lane_.g];
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
      const float4 other = shared_.exchange[partner][n][lane_.index];
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

// Grid: (units, heads, sequences); 2 L threads: a warp for 32 tokens and half a unit; shared memory:
// ReadShared.
template <int kDim, bool kFull>
__global__ void __launch_bounds__(256, 1)
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
    *reinterpret_cast<float4*>(shared.values + ovq::SharedValue<kDim>(row, 4 * column)) =
        ovq::RoundValues(LoadRow<kFull>(value, 4 * column, args.value_dim));
  }
  __syncthreads();
  const Lane lane = ThisLane();
  const int warp = static_cast<int>(threadIdx.x) >> 5;
  const int first_row = 16 * warp;
  uint32_t queries[1][kDim / 16][4];
  const int token = first_token + first_row + lane.g;
  ovq::LoadOperand<kDim, kFull>(ovq::QueryRow(args, sequence, head, token),
                                ovq::QueryRow(args, sequence, head, token + 8), args.key_dim,
                                lane.t, queries[0]);
  const float logit_scale = args.inputs.logit_scales[head] * ovq::kLog2E;
  Reads<kDim> reads[1];
  reads[0].Clear();
  for (int first = 0; first < first_row + 16; first += kTileSlots<kDim>) {
    ReadTile<kDim, 1>(
        queries, logit_scale, shared.keys, shared.values, first, lane,
        [&](int column, int r) {
          const int row = first_row + 8 * r + lane.g;
          return make_float2(column <= row ? 0.0f : -ovq::Infinity(),
                             column + 1 <= row ? 0.0f : -ovq::Infinity());
        },
        reads);
  }
  reads[0].Finish();
  const int num_filled = ovq::FilledBefore(args, sequence, chunk);
  const int num_units = (num_filled + kUnitSlots<kDim> - 1) / kUnitSlots<kDim>;
  JoinUnits<kDim>(args, PartialTile(args, sequence_index, head, chunk, 0) + warp, num_units, lane,
                  &reads[0]);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float* row = ovq::OutRow(args, sequence, head, token + 8 * r);
    if (row == nullptr) continue;
#pragma unroll
    for (int n = 0; n < kDim / 8; n += 4) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int dim = 8 * n + 8 * lane.t + 4 * e;
        if (!kFull && dim >= args.value_dim) continue;
        *reinterpret_cast<float4*>(row + dim) =
            make_float4(reads[0].out[n][2 * r + e], reads[0].out[n + 1][2 * r + e],
                        reads[0].out[n + 2][2 * r + e], reads[0].out[n + 3][2 * r + e]);
      }
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
absl::Status LaunchRead(Queue* queue, const OvqKernelArgs& args) {
  const auto threads = static_cast<unsigned>(2 * args.chunk_tokens);
  const auto heads = static_cast<unsigned>(args.num_heads);
  const auto sequences = static_cast<unsigned>(args.num_sequences);
  constexpr int kReadBytes = sizeof(ReadShared<kDim>);
  cudaFuncSetAttribute(OvqReadKernel<kDim, kFull>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       kReadBytes);
  OvqReadKernel<kDim, kFull><<<dim3(static_cast<unsigned>(args.num_units), heads, sequences),
                               threads, kReadBytes, queue->stream()>>>(args);
  LETHE_RETURN_IF_ERROR(queue->LaunchStatus("OvqReadKernel"));
  constexpr int kChunkBytes = sizeof(ChunkShared<kDim>);
  cudaFuncSetAttribute(OvqChunkKernel<kDim, kFull>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       kChunkBytes);
  OvqChunkKernel<kDim, kFull><<<dim3(static_cast<unsigned>(args.segment_chunks), heads, sequences),
                                threads, kChunkBytes, queue->stream()>>>(args);
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

absl::Status OvqLaunchRead(Queue* queue, const OvqKernelArgs& args, int dim) {
  const bool is_full = args.key_dim == dim && args.value_dim == dim;
  if (dim == 64) {
    return is_full ? LaunchRead<64, true>(queue, args) : LaunchRead<64, false>(queue, args);
  }
  return is_full ? LaunchRead<128, true>(queue, args) : LaunchRead<128, false>(queue, args);
}

}  // namespace lethe
