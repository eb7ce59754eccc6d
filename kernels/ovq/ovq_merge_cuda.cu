// The merges of full chunks: one cluster of thread blocks a head, a chain over its chunks.
//
// The slots are dealt to the cluster's blocks in tiles of 64; each block holds its slots' keys as
// halves, in shared memory where they fit, and matches all of the chunk's tokens with them. The
// blocks then exchange their best matches, and every block works out the whole assignment and
// updates the slots that it owns. A similarity depends on its token and slot alone and ties go by
// index, so the number of blocks is free.
#include <algorithm>
#include <cstdlib>

#include <cuda_runtime.h>

#include "kernels/base/status_macros.h"
#include "kernels/ovq/ovq_cuda.cuh"

namespace lethe {
namespace {

using ovq::GetSequence;
using ovq::KeyRow;
using ovq::Lane;
using ovq::LoadOperand;
using ovq::LoadRow;
using ovq::Sequence;
using ovq::ThisLane;
using ovq::ValueRow;

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxTokens = 128;
constexpr int kMaxBlocks = 8;  // of a cluster
constexpr int kMaxParts = 8;   // of a block's tiles, each of one warp at a time
constexpr int kOwnedSlots = 64;
constexpr int kMatched = 4;     // groups of 8 slots that a warp matches at once
constexpr int kSeed = 1 << 30;  // marks an opened slot in `slot_of`

// (similarity, slot) as an integer that is largest for the most similar and then the lowest slot.
__device__ uint64_t MatchKey(float similarity, int slot) {
  const uint32_t bits = __float_as_uint(similarity + 0.0f);  // -0 becomes +0
  const uint32_t ordered = bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
  return (static_cast<uint64_t>(ordered) << 32) | (0xffffffffu - static_cast<uint32_t>(slot));
}
__device__ int SlotOf(uint64_t key) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(key));
}
__device__ uint32_t OrderOf(uint64_t key) { return static_cast<uint32_t>(key >> 32); }

struct Shared {
  uint64_t candidates[kMaxParts][kMaxTokens];     // by part of the block's tiles
  uint64_t exchanged[2][kMaxBlocks][kMaxTokens];  // by exchange mod 2 and block
  uint4 orders[kMaxTokens / 4];                   // similarities, four a load
  int4 slots_of[kMaxTokens / 4];                  // the assignment, with kSeed
  uint32_t joiners[kMaxTokens / 32][kMaxTokens];  // of each token's slot
  int smaller[kMaxTokens / 32][kMaxTokens];       // tokens that are less similar
  const float* rows[2][2][kMaxTokens];            // by chunk mod 2: keys and values of the tokens
  uint32_t seeds[kMaxTokens / 32];
  int num_filled[2];        // after chunk n, at n mod 2
  int changes[kMaxTokens];  // tokens at whose place this block's changed slots are logged
  int num_changes;
};

__device__ void StoreInBlock(uint64_t* address, int block, uint64_t value) {
#if __CUDA_ARCH__ >= 900
  const auto here = static_cast<uint32_t>(__cvta_generic_to_shared(address));
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
  asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(there), "l"(value) : "memory");
#else
  static_cast<void>(block);
  *address = value;
#endif
}

__device__ void SyncCluster(int num_blocks) {
#if __CUDA_ARCH__ >= 900
  if (num_blocks > 1) {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    return;
  }
#endif
  static_cast<void>(num_blocks);
  __syncthreads();
}

// One head's merges, by one block of its cluster.
template <int kDim, bool kFull, int kTokens>
class Merger {
 public:
  static constexpr int kGroups = kTokens / 32;        // of 32 tokens
  static constexpr int kParts = kWarps / kGroups;     // of the block's slots
  static constexpr int kShares = kThreads / kTokens;  // threads that have the same token

  __device__ Merger(const OvqKernelArgs& args, const Sequence& sequence, int sequence_index,
                    int head, int block, int num_blocks, uint16_t* keys, Shared* shared)
      : args_(args),
        sequence_(sequence),
        sequence_index_(sequence_index),
        head_(head),
        block_(block),
        num_blocks_(num_blocks),
        keys_(keys),
        shared_(*shared),
        block_shift_((num_blocks > 1 ? 1 : 0) + (num_blocks > 2 ? 1 : 0) +
                     (num_blocks > 4 ? 1 : 0)),
        index_(static_cast<int>(threadIdx.x) % kTokens),
        share_(static_cast<int>(threadIdx.x) / kTokens),
        warp_(static_cast<int>(threadIdx.x) >> 5),
        lane_(ThisLane()) {
    const int64_t row = (sequence.state * args.num_heads + head) * args.max_slots;
    slot_keys_ = args.states.keys + row * KeySize();
    slot_values_ = args.states.values + row * ValueSize();
    counts_ = args.states.counts + row;
  }

  __device__ void Run() {
    num_old_ = ovq::FilledBefore(args_, sequence_, args_.first_chunk);
    LoadKeys(num_old_);
    last_chunk_ = min(args_.first_chunk + args_.segment_chunks, sequence_.num_merges);
    PrepareChunk(args_.first_chunk);
    __syncthreads();
#pragma unroll 1
    for (chunk_ = args_.first_chunk; chunk_ < last_chunk_; ++chunk_) Merge();
    SyncCluster(num_blocks_);
    // OvqAppendKernel is for the other sequences.
    if (sequence_.length == 1 && block_ == 0) ClearPending();
  }

 private:
  __device__ int KeySize() const { return kFull ? kDim : args_.key_dim; }
  __device__ int ValueSize() const { return kFull ? kDim : args_.value_dim; }
  __device__ bool Owns(int slot) const {
    return (slot / kOwnedSlots & (num_blocks_ - 1)) == block_;
  }
  __device__ int LocalRow(int slot) const {
    return (slot / kOwnedSlots >> block_shift_) * kOwnedSlots + (slot & (kOwnedSlots - 1));
  }

  // Nothing of the merged tokens stays.
  __device__ void ClearPending() const {
    const int64_t row = (sequence_.state * args_.num_heads + head_) * kTokens;
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * KeySize(); i += kThreads) {
      args_.states.pending_keys[row * KeySize() + i] = 0.0f;
    }
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * ValueSize(); i += kThreads) {
      args_.states.pending_values[row * ValueSize() + i] = 0.0f;
    }
  }

  __device__ void LoadKeys(int num_filled) {
    constexpr int kPieces = kDim / 8;
    for (int tile = block_; tile * kOwnedSlots < num_filled; tile += num_blocks_) {
      for (int i = static_cast<int>(threadIdx.x); i < kOwnedSlots * kPieces; i += kThreads) {
        const int slot = tile * kOwnedSlots + i / kPieces;
        if (slot >= num_filled) break;
        StoreKeyPiece(slot, i % kPieces, slot_keys_ + static_cast<int64_t>(slot) * KeySize());
      }
    }
    __syncthreads();
  }

  __device__ void StoreKeyPiece(int slot, int piece, const float* row) {
    *reinterpret_cast<uint4*>(keys_ + ovq::SharedKey<kDim>(LocalRow(slot), piece)) =
        ovq::KeyPiece<kFull>(row, piece, KeySize());
  }

  __device__ void Merge() {
    const int num_filled = shared_.num_filled[chunk_ & 1];
    const int num_new = num_filled - num_old_;
    PrepareChunk(chunk_ + 1);
    // Novelty in the first chunk is the distance from token 0, which itself opens slot 0; then the
    // other tokens are matched with the slots that the seeds open.
    const bool is_first = num_old_ == 0;
    int num_candidates = num_old_;
    if (is_first) {
      if (block_ == 0 && warp_ == 0 && lane_.index < kDim / 8) {
        StoreKeyPiece(0, lane_.index, RowOf(false, 0));
      }
      __syncthreads();
      num_candidates = 1;
    }
    uint64_t key;
    bool is_seed = false;
#pragma unroll 1
    for (bool is_last = !is_first;; is_last = true) {
      key = Match(num_candidates);
      if (is_last && (is_first || num_new == 0)) break;
      is_seed = SelectSeeds(is_first && index_ == 0 ? 0 : OrderOf(key), num_new);
      if (is_last) break;
      OpenFirstSlots();
      num_candidates = num_new;
    }
    if (!is_first) WarmSlot(SlotOf(key));
    Assign(is_seed, SlotOf(key));
    FindChanges();
#pragma unroll 1
    for (int i = warp_; i < shared_.num_changes; i += kWarps) Change(shared_.changes[i]);
    num_old_ = num_filled;
#pragma unroll
    for (float line : warm_) ovq::Warmed(line);
    ovq::Warmed(slot_line_);
    ovq::Warmed(count_line_);
    __syncthreads();
  }

  // Finds a chunk's rows and brings them near: what follows in the chain must not wait for memory.
  __device__ void PrepareChunk(int chunk) {
    if (chunk >= last_chunk_) return;
    const int i = static_cast<int>(threadIdx.x);
    // By a thread that has no row.
    if (i == kThreads - 1) {
      shared_.num_filled[chunk & 1] = ovq::FilledBefore(args_, sequence_, chunk + 1);
    }
    if (i >= 2 * kTokens) return;
    const bool is_value = i >= kTokens;
    const int index = is_value ? i - kTokens : i;
    const int token = chunk * kTokens + index;
    const float* row = is_value ? ovq::ValueRow(args_, sequence_, head_, token)
                                : KeyRow(args_, sequence_, head_, token);
    shared_.rows[chunk & 1][is_value ? 1 : 0][index] = row;
    const int size = is_value ? ValueSize() : KeySize();
#pragma unroll
    for (int line = 0; line < kDim / 32; ++line) {
      warm_[line] = kFull || 32 * line < size ? ovq::Warm(row + 32 * line) : 0.0f;
    }
  }

  // The slot that the thread's token will join, likewise.
  __device__ void WarmSlot(int slot) {
    if (!Owns(slot)) return;
    const bool is_value = share_ % 2 != 0;
    const int element = share_ / 2 * 32;
    const int size = is_value ? ValueSize() : KeySize();
    const float* rows = is_value ? slot_values_ : slot_keys_;
    if (element < size) slot_line_ = ovq::Warm(rows + static_cast<int64_t>(slot) * size + element);
    if (share_ == 0) count_line_ = ovq::Warm(reinterpret_cast<const float*>(counts_ + slot));
  }

  __device__ const float* RowOf(bool is_value, int index) const {
    return shared_.rows[chunk_ & 1][is_value ? 1 : 0][index];
  }

  // The best of the first num_slots slots for the thread's token, over all blocks.
  __device__ uint64_t Match(int num_slots) {
    const int group = warp_ % kGroups;  // of 32 tokens
    const int part = warp_ / kGroups;   // of the block's tiles
    uint32_t a[2][kDim / 16][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const int row = group * 32 + m * 16 + lane_.g;
      LoadOperand<kDim, kFull>(RowOf(false, row), RowOf(false, row + 8), KeySize(), lane_.t, a[m]);
    }
    float best[4];
    int best_slot[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      best[r] = -ovq::Infinity();
      best_slot[r] = 0;
    }
#pragma unroll 1
    for (int i = part; (i * num_blocks_ + block_) * kOwnedSlots < num_slots; i += kParts) {
      const int first = (i * num_blocks_ + block_) * kOwnedSlots;
#pragma unroll 1
      for (int n = 0; n < kOwnedSlots && first + n < num_slots; n += 8 * kMatched) {
        MatchSlots(a, i * kOwnedSlots + n, first + n, num_slots, best, best_slot);
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      uint64_t key = MatchKey(best[r], best_slot[r]);
      key = max(key, __shfl_xor_sync(0xffffffffu, key, 1));
      key = max(key, __shfl_xor_sync(0xffffffffu, key, 2));
      if (lane_.t == 0) shared_.candidates[part][group * 32 + r * 8 + lane_.g] = key;
    }
    __syncthreads();
    return Exchange();
  }

  // 8 kMatched slots, at row `local` of keys_, against the warp's 32 tokens: best[r] is of row
  // 8 r + g. Rows beyond num_slots hold anything.
  __device__ void MatchSlots(const uint32_t (&a)[2][kDim / 16][4], int local, int slot,
                             int num_slots, float (&best)[4], int (&best_slot)[4]) {
    float dots[kMatched][2][4] = {};
    const ovq::KeyLane<kDim> key_lane(keys_, local, lane_);
#pragma unroll
    for (int pair = 0; pair < kDim / 32; ++pair) {
#pragma unroll
      for (int n = 0; n < kMatched; ++n) {
        const uint4 b = key_lane.Load(n, pair);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          ovq::MmaHalf(dots[n][m], a[m][2 * pair], b.x, b.y);
          ovq::MmaHalf(dots[n][m], a[m][2 * pair + 1], b.z, b.w);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kMatched; ++n) {
      const int column = slot + 8 * n + 2 * lane_.t;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const bool is_set = column + e < num_slots;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const float dot = dots[n][r >> 1][2 * (r & 1) + e];
          if (is_set && dot > best[r]) {
            best[r] = dot;
            best_slot[r] = column + e;
          }
        }
      }
    }
  }

  __device__ uint64_t Exchange() {
    uint64_t key = 0;
#pragma unroll
    for (int part = 0; part < kParts; ++part) key = max(key, shared_.candidates[part][index_]);
    uint64_t(&exchanged)[kMaxBlocks][kMaxTokens] = shared_.exchanged[num_exchanges_++ & 1];
    if (num_blocks_ == 1) {
      __syncthreads();  // candidates may be written again
      return key;
    }
    for (int there = share_; there < num_blocks_; there += kShares) {
      StoreInBlock(&exchanged[block_][index_], there, key);
    }
    SyncCluster(num_blocks_);
#pragma unroll 4
    for (int there = 0; there < num_blocks_; ++there) key = max(key, exchanged[there][index_]);
    return key;
  }

  // True where the thread's token is among the num_seeds with the smallest (order, rank).
  __device__ bool SelectSeeds(uint32_t order, int num_seeds) {
    if (share_ == 0) reinterpret_cast<uint32_t*>(shared_.orders)[index_] = order;
    __syncthreads();
    if (share_ < kGroups) {
      const int place = index_ - share_ * 32;  // lower ranks win ties
      int smaller = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint4 four = shared_.orders[share_ * 8 + i];
        smaller += four.x < order + (4 * i < place ? 1 : 0) ? 1 : 0;
        smaller += four.y < order + (4 * i + 1 < place ? 1 : 0) ? 1 : 0;
        smaller += four.z < order + (4 * i + 2 < place ? 1 : 0) ? 1 : 0;
        smaller += four.w < order + (4 * i + 3 < place ? 1 : 0) ? 1 : 0;
      }
      shared_.smaller[share_][index_] = smaller;
    }
    __syncthreads();
    int rank = 0;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) rank += shared_.smaller[group][index_];
    const bool is_seed = rank < num_seeds;
    const uint32_t ballot = __ballot_sync(0xffffffffu, is_seed);
    if (warp_ < kGroups && lane_.index == 0) shared_.seeds[warp_] = ballot;
    __syncthreads();
    return is_seed;
  }

  __device__ bool IsSeed(int index) const {
    return (shared_.seeds[index >> 5] >> (index & 31) & 1) != 0;
  }
  // Slots are taken in rank order.
  __device__ int SeedSlot(int index) const {
    int slot = num_old_;
#pragma unroll
    for (int group = 0; group < kGroups - 1; ++group) {
      if (group < index >> 5) slot += __popc(shared_.seeds[group]);
    }
    return slot + __popc(shared_.seeds[index >> 5] & ((1u << (index & 31)) - 1));
  }

  // The first chunk's seeds are what its other tokens are matched with.
  __device__ void OpenFirstSlots() {
    constexpr int kPieces = kDim / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * kPieces; i += kThreads) {
      const int index = i / kPieces;
      if (!IsSeed(index)) continue;
      const int slot = SeedSlot(index);
      if (!Owns(slot)) continue;
      StoreKeyPiece(slot, i % kPieces, RowOf(false, index));
    }
    __syncthreads();
  }

  __device__ void Assign(bool is_seed, int slot) {
    if (share_ == 0) {
      if (is_seed) slot = SeedSlot(index_);
      reinterpret_cast<int*>(shared_.slots_of)[index_] = is_seed ? slot | kSeed : slot;
      if (args_.assignments != nullptr && block_ == 0) {
        const int64_t row =
            (static_cast<int64_t>(sequence_index_) * args_.max_merges + chunk_) * args_.num_heads +
            head_;
        args_.assignments[row * kTokens + index_] = is_seed ? ~slot : slot;
      }
    }
    if (threadIdx.x == 0) shared_.num_changes = 0;
    __syncthreads();
  }

  // A changed slot stands at the place of the token that opened it, else of the first that joined.
  __device__ void FindChanges() {
    const int entry = reinterpret_cast<const int*>(shared_.slots_of)[index_];
    const int slot = entry & ~kSeed;
    if (share_ < kGroups) {
      uint32_t joiners = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int4 four = shared_.slots_of[share_ * 8 + i];
        joiners |= four.x == slot ? 1u << (4 * i) : 0u;
        joiners |= four.y == slot ? 2u << (4 * i) : 0u;
        joiners |= four.z == slot ? 4u << (4 * i) : 0u;
        joiners |= four.w == slot ? 8u << (4 * i) : 0u;
      }
      shared_.joiners[share_][index_] = joiners;
    }
    __syncthreads();
    if (share_ == 0) ListChange(entry, slot);
    __syncthreads();
  }

  __device__ void ListChange(int entry, int slot) {
    bool is_change = (entry & kSeed) != 0;
    if (!is_change && num_old_ != 0) {
      uint32_t before = 0;  // tokens that joined the slot and have a lower rank
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        const int place = index_ - group * 32;
        const uint32_t joiners = shared_.joiners[group][index_];
        if (place > 0) before |= place >= 32 ? joiners : joiners & ((1u << place) - 1);
      }
      is_change = before == 0;
    }
    if (is_change && Owns(slot)) shared_.changes[atomicAdd(&shared_.num_changes, 1)] = index_;
    if (block_ == 0 && args_.log_slots != nullptr) {
      args_.log_slots[LogRow(index_)] = is_change ? slot : -1;
    }
  }

  __device__ int64_t LogRow(int index) const {
    const int64_t head = static_cast<int64_t>(sequence_index_) * args_.num_heads + head_;
    return (head * args_.segment_chunks + chunk_ - args_.first_chunk) * kTokens + index;
  }

  // By one warp: the slot at a token's place becomes the mean with those that join it.
  __device__ void Change(int index) {
    const int entry = reinterpret_cast<const int*>(shared_.slots_of)[index];
    const int slot = entry & ~kSeed;
    const bool is_seed = (entry & kSeed) != 0;
    uint64_t low = shared_.joiners[0][index] | static_cast<uint64_t>(shared_.joiners[1][index])
                                                   << 32;
    uint64_t high = 0;
    if constexpr (kGroups > 2) {
      high = shared_.joiners[2][index] | static_cast<uint64_t>(shared_.joiners[3][index]) << 32;
    }
    const int num_joiners = __popcll(low) + __popcll(high);
    const int count = is_seed ? 1 : counts_[slot];
    float4 means[kDim / 64];
    float4 sums[kDim / 64];
#pragma unroll
    for (int i = 0; i < kDim / 64; ++i) {
      means[i] = is_seed ? LoadVector(RowOf(!IsKey(i), index), i) : LoadVector(SlotRow(i, slot), i);
      sums[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    AddRows(low, high, &sums);
    const auto weight = static_cast<float>(count);
    const auto total = static_cast<float>(count + num_joiners);
#pragma unroll
    for (int i = 0; i < kDim / 64; ++i) {
      if (num_joiners > 0) {
        means[i].x = __fdiv_rn(fmaf(weight, means[i].x, sums[i].x), total);
        means[i].y = __fdiv_rn(fmaf(weight, means[i].y, sums[i].y), total);
        means[i].z = __fdiv_rn(fmaf(weight, means[i].z, sums[i].z), total);
        means[i].w = __fdiv_rn(fmaf(weight, means[i].w, sums[i].w), total);
      }
      if (kFull || Element(i) < Size(i)) {
        *reinterpret_cast<float4*>(SlotRow(i, slot) + Element(i)) = means[i];
      }
      IsKey(i) ? StoreKey(slot, index, Element(i), means[i])
               : StoreValue(index, Element(i), means[i]);
    }
    if (lane_.index != 0) return;
    counts_[slot] = count + num_joiners;
    if (args_.log_biases != nullptr) args_.log_biases[LogRow(index)] = ovq::Log2(total);
  }

  // A lane's i-th vector of the D keys and D values of a row.
  __device__ int Vector(int i) const { return i * 32 + lane_.index; }
  __device__ bool IsKey(int i) const { return Vector(i) < kDim / 4; }
  __device__ int Element(int i) const { return 4 * (Vector(i) % (kDim / 4)); }
  __device__ int Size(int i) const { return IsKey(i) ? KeySize() : ValueSize(); }
  __device__ float* SlotRow(int i, int slot) const {
    return (IsKey(i) ? slot_keys_ : slot_values_) + static_cast<int64_t>(slot) * Size(i);
  }
  __device__ float4 LoadVector(const float* row, int i) const {
    return LoadRow<kFull>(row, Element(i), Size(i));
  }

  // Adds the rows of a set of tokens in rank order, four in flight.
  __device__ void AddRows(uint64_t low, uint64_t high, float4 (*sums)[kDim / 64]) const {
#pragma unroll 1
    while ((low | high) != 0) {
      float4 rows[4][kDim / 64];
      bool is_set[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        is_set[j] = (low | high) != 0;
        const int index = low != 0 ? __ffsll(static_cast<long long>(low)) - 1
                                   : 63 + __ffsll(static_cast<long long>(high));
        if (low != 0) {
          low &= low - 1;
        } else {
          high &= high - 1;
        }
        if (!is_set[j]) continue;
#pragma unroll
        for (int i = 0; i < kDim / 64; ++i) rows[j][i] = LoadVector(RowOf(!IsKey(i), index), i);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (!is_set[j]) break;
#pragma unroll
        for (int i = 0; i < kDim / 64; ++i) {
          float4& sum = (*sums)[i];
          sum = make_float4(sum.x + rows[j][i].x, sum.y + rows[j][i].y, sum.z + rows[j][i].z,
                            sum.w + rows[j][i].w);
        }
      }
    }
  }

  __device__ void StoreKey(int slot, int index, int element, float4 mean) {
    const uint2 halves =
        make_uint2(ovq::PackHalves(mean.x, mean.y), ovq::PackHalves(mean.z, mean.w));
    const int place = ovq::PermutedHalf(element);
    *reinterpret_cast<uint2*>(keys_ + ovq::SharedKey<kDim>(LocalRow(slot), place >> 3) +
                              (place & 7)) = halves;
    if (args_.log_keys != nullptr) {
      *reinterpret_cast<uint2*>(args_.log_keys + LogRow(index) * kDim + place) = halves;
    }
  }
  __device__ void StoreValue(int index, int element, float4 mean) {
    if (args_.log_values == nullptr) return;
    *reinterpret_cast<float4*>(args_.log_values + LogRow(index) * kDim + element) =
        ovq::RoundValues(mean);
  }

  const OvqKernelArgs& args_;
  const Sequence sequence_;
  const int sequence_index_;
  const int head_;
  const int block_;
  const int num_blocks_;
  uint16_t* const keys_;
  Shared& shared_;
  const int block_shift_;  // log2 num_blocks
  const int index_;        // the thread's token
  const int share_;
  const int warp_;
  const Lane lane_;
  float* slot_keys_;
  float* slot_values_;
  int32_t* counts_;
  int chunk_ = 0;
  int last_chunk_ = 0;
  float warm_[kDim / 32] = {};  // lines on their way
  float slot_line_ = 0.0f;
  float count_line_ = 0.0f;
  int num_old_ = 0;
  int num_exchanges_ = 0;
};

// Grid: clusters of num_blocks, which take the heads of the sequences in turn; 512 threads; shared
// memory: Shared and, in the tuned form, the keys. The other form is for dimensions that are not
// kDim and for slots that do not fit; it has one block a head.
template <int kDim, bool kTuned, int kTokens>
__global__ void __launch_bounds__(kThreads, 1)
    OvqMergeKernel(const __grid_constant__ OvqKernelArgs args, int num_blocks) {
  extern __shared__ uint4 shared_memory[];
  auto* shared = reinterpret_cast<Shared*>(shared_memory);
  const int block = static_cast<int>(blockIdx.x) % num_blocks;
  const int first = static_cast<int>(blockIdx.x) / num_blocks;
  const int num_clusters = static_cast<int>(gridDim.x) / num_blocks;
  const int num_chains = args.num_heads * args.num_sequences;
  // In a decode there is nothing to do as a rule: that is found out at once.
  bool is_due = false;
  for (int chain = first + static_cast<int>(threadIdx.x) * num_clusters; chain < num_chains;
       chain += kThreads * num_clusters) {
    is_due |= args.first_chunk < GetSequence(args, chain / args.num_heads).num_merges;
  }
  if (__syncthreads_or(is_due ? 1 : 0) == 0) return;  // so does the whole cluster
  for (int chain = first; chain < num_chains; chain += num_clusters) {
    const int sequence_index = chain / args.num_heads;
    const Sequence sequence = GetSequence(args, sequence_index);
    if (args.first_chunk >= sequence.num_merges) continue;
    uint16_t* keys = kTuned ? reinterpret_cast<uint16_t*>(shared + 1)
                            : args.merge_keys + static_cast<int64_t>(chain) * args.capacity * kDim;
    Merger<kDim, kTuned, kTokens>(args, sequence, sequence_index, chain % args.num_heads, block,
                                  num_blocks, keys, shared)
        .Run();
  }
}

// Bytes of a block's shared memory with its keys; rounded up to whole tiles.
size_t SharedBytes(int dim, int num_blocks, int64_t max_filled) {
  const int64_t tiles = (max_filled + kOwnedSlots - 1) / kOwnedSlots;
  const int64_t rows = (tiles + num_blocks - 1) / num_blocks * kOwnedSlots;
  return sizeof(Shared) + static_cast<size_t>(rows * dim) * sizeof(uint16_t);
}

template <int kDim, bool kTuned, int kTokens>
absl::Status Launch(Queue* queue, const OvqKernelArgs& args, int num_blocks, size_t bytes) {
  const auto kernel = &OvqMergeKernel<kDim, kTuned, kTokens>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(bytes));
  const int num_clusters = std::min(args.num_heads * args.num_sequences,
                                    std::max(1, queue->num_multiprocessors() / num_blocks));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(num_blocks * num_clusters));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = queue->stream();
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(num_blocks), 1, 1};
  config.attrs = &cluster;
  config.numAttrs = num_blocks > 1 ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, args, num_blocks);
  return queue->LaunchStatus("OvqMergeKernel");
}

// As many blocks a head as the device has room for: they cost exchanges, but share the work. Of the
// 132 multiprocessors of an H100 not all can be in clusters of 8, whose blocks are of one group of
// 16 or 18; a cluster that has to wait for another would double the time.
int NumBlocks(Queue* queue, const OvqKernelArgs& args, int dim, int64_t max_filled, size_t most) {
  if (queue->compute_capability() < 90) return 1;
  const int num_chains = args.num_heads * args.num_sequences;
  int num_blocks = 1;
  while (num_blocks < kMaxBlocks &&
         (SharedBytes(dim, num_blocks, max_filled) > most ||
          2 * num_blocks * num_chains <= queue->num_multiprocessors() * 3 / 4)) {
    num_blocks *= 2;
  }
  if (const char* v = std::getenv("OVQ_BLOCKS")) num_blocks = std::atoi(v);
  return num_blocks;
}

template <int kDim, int kTokens>
absl::Status Launch(Queue* queue, const OvqKernelArgs& args, int64_t max_filled) {
  const size_t most = queue->compute_capability() >= 90 ? size_t{227} << 10 : size_t{99} << 10;
  const int num_blocks = NumBlocks(queue, args, kDim, max_filled, most);
  const size_t bytes = SharedBytes(kDim, num_blocks, max_filled);
  if (bytes <= most && args.key_dim == kDim && args.value_dim == kDim) {
    return Launch<kDim, true, kTokens>(queue, args, num_blocks, bytes);
  }
  return Launch<kDim, false, kTokens>(queue, args, 1, sizeof(Shared));
}

}  // namespace

absl::Status OvqLaunchMerge(Queue* queue, const OvqKernelArgs& args, int dim, int64_t max_filled) {
  if (args.chunk_tokens == 64) {
    return dim == 64 ? Launch<64, 64>(queue, args, max_filled)
                     : Launch<128, 64>(queue, args, max_filled);
  }
  return dim == 64 ? Launch<64, 128>(queue, args, max_filled)
                   : Launch<128, 128>(queue, args, max_filled);
}

}  // namespace lethe
