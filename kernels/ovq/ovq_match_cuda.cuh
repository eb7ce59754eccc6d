// The matching half of OVQ's merge: which slot is each token of a chunk most similar to, and which
// tokens open slots.
//
// The slots are dealt to a cluster's blocks in tiles of 64; each block holds its slots' keys as
// halves and matches all of the chunk's tokens with them; then the blocks exchange their best
// matches. A similarity depends on its token and slot alone and ties go by index, so the number of
// blocks is free.
#ifndef LETHE_KERNELS_OVQ_OVQ_MATCH_CUDA_CUH_
#define LETHE_KERNELS_OVQ_OVQ_MATCH_CUDA_CUH_

#include <cstdint>

#include "kernels/ovq/ovq_cuda.cuh"

namespace lethe::ovq {

constexpr int kMergeThreads = 512;
constexpr int kMergeWarps = kMergeThreads / 32;
constexpr int kMaxTokens = 128;
constexpr int kMaxBlocks = 8;  // of a cluster
constexpr int kMaxParts = 8;   // of a block's tiles, each of one warp at a time
constexpr int kOwnedSlots = 64;
constexpr int kMatched = 4;     // groups of 8 slots that a warp matches at once
constexpr int kSeed = 1 << 30;  // marks an opened slot in `slot_of`

// (similarity, slot) as an integer that is largest for the most similar and then the lowest slot.
__device__ inline uint64_t MatchKey(float similarity, int slot) {
  const uint32_t bits = __float_as_uint(similarity + 0.0f);  // -0 becomes +0
  const uint32_t ordered = bits ^ ((bits >> 31) != 0 ? 0xffffffffu : 0x80000000u);
  return (static_cast<uint64_t>(ordered) << 32) | (0xffffffffu - static_cast<uint32_t>(slot));
}
__device__ inline int SlotOf(uint64_t key) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(key));
}
__device__ inline uint32_t OrderOf(uint64_t key) { return static_cast<uint32_t>(key >> 32); }

struct MergeShared {
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

__device__ inline void StoreInBlock(uint64_t* address, int block, uint64_t value) {
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

__device__ inline void SyncCluster(int num_blocks) {
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

// The chunk's tokens and the slots' keys as one block of a head's cluster has them.
template <int kDim, bool kFull, int kTokens>
class Matcher {
 public:
  static constexpr int kGroups = kTokens / 32;             // of 32 tokens
  static constexpr int kParts = kMergeWarps / kGroups;     // of the block's slots
  static constexpr int kShares = kMergeThreads / kTokens;  // threads that have the same token

  __device__ Matcher(const OvqKernelArgs& args, const Sequence& sequence, int sequence_index,
                     int head, int block, int num_blocks, uint16_t* keys, MergeShared* shared)
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

 protected:
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
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * KeySize(); i += kMergeThreads) {
      args_.states.pending_keys[row * KeySize() + i] = 0.0f;
    }
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * ValueSize(); i += kMergeThreads) {
      args_.states.pending_values[row * ValueSize() + i] = 0.0f;
    }
  }

  __device__ void LoadKeys(int num_filled) {
    constexpr int kPieces = kDim / 8;
    for (int tile = block_; tile * kOwnedSlots < num_filled; tile += num_blocks_) {
      for (int i = static_cast<int>(threadIdx.x); i < kOwnedSlots * kPieces; i += kMergeThreads) {
        const int slot = tile * kOwnedSlots + i / kPieces;
        if (slot >= num_filled) break;
        StoreKeyPiece(slot, i % kPieces, slot_keys_ + static_cast<int64_t>(slot) * KeySize());
      }
    }
    __syncthreads();
  }

  __device__ void StoreKeyPiece(int slot, int piece, const float* row) {
    *reinterpret_cast<uint4*>(keys_ + SharedKey<kDim>(LocalRow(slot), piece)) =
        KeyPiece<kFull>(row, piece, KeySize());
  }

  // Finds a chunk's rows and brings them near: what follows in the chain must not wait for memory.
  __device__ void PrepareChunk(int chunk) {
    if (chunk >= last_chunk_) return;
    const int i = static_cast<int>(threadIdx.x);
    // By a thread that has no row.
    if (i == kMergeThreads - 1) {
      shared_.num_filled[chunk & 1] = FilledBefore(args_, sequence_, chunk + 1);
    }
    if (i >= 2 * kTokens) return;
    const bool is_value = i >= kTokens;
    const int index = is_value ? i - kTokens : i;
    const int token = chunk * kTokens + index;
    const float* row = is_value ? ValueRow(args_, sequence_, head_, token)
                                : KeyRow(args_, sequence_, head_, token);
    shared_.rows[chunk & 1][is_value ? 1 : 0][index] = row;
    const int size = is_value ? ValueSize() : KeySize();
#pragma unroll
    for (int line = 0; line < kDim / 32; ++line) {
      warm_[line] = kFull || 32 * line < size ? Warm(row + 32 * line) : 0.0f;
    }
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
      best[r] = -Infinity();
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
    const KeyLane<kDim> key_lane(keys_, local, lane_);
#pragma unroll
    for (int pair = 0; pair < kDim / 32; ++pair) {
#pragma unroll
      for (int n = 0; n < kMatched; ++n) {
        const uint4 b = key_lane.Load(n, pair);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          MmaHalf(dots[n][m], a[m][2 * pair], b.x, b.y);
          MmaHalf(dots[n][m], a[m][2 * pair + 1], b.z, b.w);
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
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * kPieces; i += kMergeThreads) {
      const int index = i / kPieces;
      if (!IsSeed(index)) continue;
      const int slot = SeedSlot(index);
      if (!Owns(slot)) continue;
      StoreKeyPiece(slot, i % kPieces, RowOf(false, index));
    }
    __syncthreads();
  }

  const OvqKernelArgs& args_;
  const Sequence sequence_;
  const int sequence_index_;
  const int head_;
  const int block_;
  const int num_blocks_;
  uint16_t* const keys_;
  MergeShared& shared_;
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
  int num_old_ = 0;
  int num_exchanges_ = 0;
};

}  // namespace lethe::ovq

#endif  // LETHE_KERNELS_OVQ_OVQ_MATCH_CUDA_CUH_
