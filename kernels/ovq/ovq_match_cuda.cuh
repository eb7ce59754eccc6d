// The matching half of OVQ's merge: which slot is each token of a chunk most similar to, which
// tokens open slots, and which slots change.
#ifndef LETHE_KERNELS_OVQ_OVQ_MATCH_CUDA_CUH_
#define LETHE_KERNELS_OVQ_OVQ_MATCH_CUDA_CUH_

#include <climits>
#include <cstdint>

#include "kernels/ovq/ovq_merge_cuda.cuh"

namespace lethe::ovq {

template <int kDim, bool kFull, int kTokens>
class Matcher {
  using Block = MergeBlock<kDim, kFull, kTokens>;
  static constexpr int kGroups = Block::kGroups;
  static constexpr int kShares = Block::kShares;
  static constexpr int kPieces = Block::kPieces;
  static constexpr int kParts = kMergeWarps / kGroups;  // of the block's slots
  static constexpr int kMatched = 2;  // groups of 8 slots that a warp matches at once
  static constexpr int kBatchSlots = 8 * kMatched;
  static constexpr int kLaneSlots = 2 * kMatched;  // of a batch that a lane compares

 public:
  __device__ explicit Matcher(Block* block) : b_(*block) {}

  __device__ void Assign(int num_new) {
    const uint64_t key = Match(b_.num_old);
    int slot = SlotOf(key);
    const int count = PrefetchSlot(slot);
    typename Block::Staged staged;
    b_.LoadTokens(b_.chunk + 1, staged);
    const bool is_seed = num_new > 0 && IsSeed(OrderOf(key), num_new);
    const int entry = is_seed ? kSeed : slot;
    int num_before = 0;
    int num_found = 0;
    const uint32_t found = FindEntries(entry, entry, &num_before, &num_found);
    b_.StoreTokens(staged);
    // Slots are taken in rank order. A changed slot stands at the place of the token that opened
    // it, else of the first that joined.
    if (is_seed) slot = b_.num_old + num_before;
    List(is_seed, is_seed || num_before == 0, slot, count, found, is_seed ? 0 : num_found);
  }

  // Novelty in the first chunk is the distance from token 0, which itself opens slot 0; then the
  // other tokens are matched with the slots that the seeds open.
  __device__ void AssignFirst(int num_new) {
    if (b_.block == 0 && b_.warp == 0 && b_.lane.index < kDim / 8) {
      b_.StoreKeyPiece(0, b_.lane.index, b_.RowOf(false, 0));
    }
    __syncthreads();
    const uint64_t first_key = Match(1);
    const bool is_seed = IsSeed(b_.index == 0 ? 0 : OrderOf(first_key), num_new);
    int slot = 0;
    int num_found = 0;
    FindEntries(is_seed ? kSeed : 0, kSeed, &slot, &num_found);
    if (is_seed && b_.Owns(slot)) {
      for (int piece = b_.share; piece < kPieces; piece += kShares) {
        b_.StoreKeyPiece(slot, piece, b_.RowOf(false, b_.index));
      }
    }
    __syncthreads();
    const uint64_t key = Match(num_new);
    typename Block::Staged staged;
    b_.LoadTokens(b_.chunk + 1, staged);
    b_.StoreTokens(staged);
    if (!is_seed) slot = SlotOf(key);
    int num_before = 0;
    const uint32_t found =
        FindEntries(is_seed ? slot | kSeed : slot, slot, &num_before, &num_found);
    List(is_seed, is_seed, slot, 1, found, num_found);
  }

  // Tells the reads that the merges before a chunk are done, as far as the block's slots go; all
  // its threads have met since.
  __device__ void Publish(int chunk) const {
    if (b_.args.progress == nullptr || threadIdx.x != 0) return;
    if (chunk <= b_.args.first_chunk) return;
    const int64_t chain = static_cast<int64_t>(b_.sequence_index) * b_.args.num_heads + b_.head;
    int32_t* progress = b_.args.progress + chain * kOvqMaxMergeBlocks + b_.block;
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(progress), "r"(chunk) : "memory");
  }

 private:
  // Brings the slot nearer that the thread's token may join. Its count, for the token's first share.
  __device__ int PrefetchSlot(int slot) const {
    if (!b_.Owns(slot)) return 0;
    if (b_.share < 4) {
      const bool is_key = b_.share < 2;
      const int size = is_key ? b_.KeySize() : b_.ValueSize();
      PrefetchLines((is_key ? b_.shared.slot_keys : b_.shared.slot_values) +
                        static_cast<int64_t>(slot) * size,
                    size, b_.share & 1, 2);
    }
    return b_.share == 0 ? b_.shared.counts[slot] : 0;
  }

  // Notes a token's slot and, for the block's changes, which tokens join it: `joiners` is the
  // share's part of them, old_count the slot's count, if it is an old one.
  __device__ void List(bool is_seed, bool is_change, int slot, int old_count, uint32_t joiners,
                       int num_joiners) {
    if (b_.share < kGroups) b_.shared.joiners[b_.share][b_.index] = joiners;
    if (b_.share != 0) return;
    if (b_.args.assignments != nullptr && b_.block == 0) {
      const int64_t row =
          (static_cast<int64_t>(b_.sequence_index) * b_.args.max_merges + b_.chunk) *
              b_.args.num_heads +
          b_.head;
      b_.args.assignments[row * kTokens + b_.index] = is_seed ? ~slot : slot;
    }
    if (!is_change || !b_.Owns(slot)) return;
    const int count = is_seed ? 1 : old_count;
    const auto total = static_cast<float>(count + num_joiners);
    b_.shared.changes[atomicAdd(&b_.shared.num_changes, 1)] = {
        is_seed ? slot | kSeed : slot, b_.index, num_joiners,
        static_cast<float>(count),     total,    __frcp_rn(total)};
    b_.shared.counts[slot] = count + num_joiners;
    b_.arrays.slot_rows[b_.LocalRow(slot)] = b_.ChangedRow() + b_.index;
    if (b_.args.row_biases != nullptr) {
      b_.args.row_biases[RowsOfChain(b_.args, b_.Chain()) + b_.ChangedRow() + b_.index] =
          Log2(total);
    }
  }

  // The best of the first num_slots slots for the thread's token, over all blocks.
  __device__ uint64_t Match(int num_slots) {
    const int group = b_.warp % kGroups;  // of 32 tokens
    const int part = b_.warp / kGroups;   // of the block's batches of slots
    uint32_t a[2][kDim / 16][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) LoadTokenOperand(2 * group + m, a[m]);
    uint64_t keys[4] = {};  // of rows 8 r + g
    int row = part * kBatchSlots;
    // Once, where a block's shared memory holds its slots: a warp has fewer batches than there are
    // places.
    do {
      const int first_row = row;
      int best[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) best[r] = INT_MIN;
#pragma unroll 1
      for (int place = kPlaceBits + 1 - kLaneSlots; place >= 0;
           place -= kLaneSlots, row += kParts * kBatchSlots) {
        const int first = b_.SlotOfLocal(row);
        if (first >= num_slots) break;
        if (first + kBatchSlots <= num_slots) {
          MatchSlots<true>(a, row, first, num_slots, place, best);
        } else {
          MatchSlots<false>(a, row, first, num_slots, place, best);
        }
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const uint32_t place = ~static_cast<uint32_t>(best[r]) & kPlaceBits;
        const int local = first_row +
                          static_cast<int>(place / kLaneSlots * (kParts * kBatchSlots) +
                                           place % kLaneSlots / 2 * 8 + (place & 1)) +
                          2 * b_.lane.t;
        keys[r] = max(keys[r], MatchKey(best[r], b_.SlotOfLocal(local)));
      }
    } while (!kFull && b_.SlotOfLocal(row) < num_slots);
    // Of the four rows lane t is to have the best of row 8 t + g.
    const bool is_high = (b_.lane.t & 2) != 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint64_t other = __shfl_xor_sync(0xffffffffu, is_high ? keys[r] : keys[r + 2], 2);
      keys[r] = max(is_high ? keys[r + 2] : keys[r], other);
    }
    const bool is_odd = (b_.lane.t & 1) != 0;
    const uint64_t other = __shfl_xor_sync(0xffffffffu, is_odd ? keys[0] : keys[1], 1);
    b_.shared.candidates[part * kTokens + group * 32 + 8 * b_.lane.t + b_.lane.g] =
        max(is_odd ? keys[1] : keys[0], other);
    __syncthreads();
    return Exchange();
  }

  __device__ void LoadTokenOperand(int tile, uint32_t (&a)[kDim / 16][4]) const {
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const uint4 x = *b_.TokenOperand(tile * (kDim / 16) + step);
      a[step][0] = x.x;
      a[step][1] = x.y;
      a[step][2] = x.z;
      a[step][3] = x.w;
    }
  }

  // A batch of slots, at row `local` of the keys, against the warp's 32 tokens: best[r] is of row 8
  // r + g, a similarity plus 2, whose bits are in the order of integers, with the slot's place in
  // its last bits: lower slots are larger. Rows beyond num_slots hold anything.
  template <bool kAll>
  __device__ void MatchSlots(const uint32_t (&a)[2][kDim / 16][4], int local, int slot,
                             int num_slots, int place, int (&best)[4]) {
    float dots[kMatched][2][4];
    const KeyLane<kDim> key_lane(b_.arrays.keys, local, b_.lane);
#pragma unroll
    for (int pair = 0; pair < kDim / 32; ++pair) {
      uint4 b[kMatched];
#pragma unroll
      for (int n = 0; n < kMatched; ++n) b[n] = key_lane.Load(n, pair);
#pragma unroll
      for (int n = 0; n < kMatched; ++n) {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          pair == 0 ? MmaHalf(dots[n][m], 2.0f, a[m][0], b[n].x, b[n].y)
                    : MmaHalf(dots[n][m], a[m][2 * pair], b[n].x, b[n].y);
        }
      }
#pragma unroll
      for (int n = 0; n < kMatched; ++n) {
#pragma unroll
        for (int m = 0; m < 2; ++m) MmaHalf(dots[n][m], a[m][2 * pair + 1], b[n].z, b[n].w);
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      int top = INT_MIN;
#pragma unroll
      for (int n = 0; n < kMatched; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int dot = __float_as_int(dots[n][r >> 1][2 * (r & 1) + e]);
          const int key = (dot & ~static_cast<int>(kPlaceBits)) | (kLaneSlots - 1 - 2 * n - e);
          if (kAll || slot + 8 * n + 2 * b_.lane.t + e < num_slots) top = max(top, key);
        }
      }
      best[r] = max(best[r], top + place);
    }
  }

  __device__ uint64_t Exchange() {
    uint64_t key = 0;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      key = max(key, b_.shared.candidates[part * kTokens + b_.index]);
    }
    if (b_.num_blocks == 1) {
      __syncthreads();  // candidates may be written again
      if (b_.args.is_overlapped) Publish(b_.chunk);
      return key;
    }
    // A block that sends has had all that was sent to it before, so two buffers do.
    const int buffer = num_exchanges_ & 1;
    const int phase = num_exchanges_ >> 1 & 1;
    ++num_exchanges_;
    uint64_t* exchanged = b_.arrays.exchanged + buffer * b_.num_blocks * kTokens;
    uint64_t* barrier = &b_.shared.exchanges[buffer];
    if (threadIdx.x == 0) ExpectBytes(barrier, b_.num_blocks * kTokens * 8);
    for (int there = b_.share; there < b_.num_blocks; there += kShares) {
      SendToBlock(exchanged + b_.block * kTokens + b_.index, barrier, there, key);
    }
    if (b_.args.is_overlapped) Publish(b_.chunk);
    WaitForBytes(barrier, phase);
#pragma unroll 4
    for (int there = 0; there < b_.num_blocks; ++there) {
      key = max(key, exchanged[there * kTokens + b_.index]);
    }
    return key;
  }

  __device__ int SumOfShares(int x) const {
#pragma unroll
    for (int offset = 1; offset < kShares; offset *= 2) {
      x += __shfl_xor_sync(0xffffffffu, x, offset);
    }
    return x;
  }

  // True where the thread's token is among the num_seeds with the smallest (order, rank).
  __device__ bool IsSeed(uint32_t order, int num_seeds) {
    order |= static_cast<uint32_t>(b_.index);
    if (b_.share == 0) WordOf(b_.shared.orders) = order;
    __syncthreads();
    int smaller = 0;
    if (b_.share < kGroups) {
      uint4 words[8];
      LoadGroup(b_.shared.orders, words);
#pragma unroll
      for (const uint4& four : words) {
        CountIfLess(four.x, order, &smaller);
        CountIfLess(four.y, order, &smaller);
        CountIfLess(four.z, order, &smaller);
        CountIfLess(four.w, order, &smaller);
      }
    }
    return SumOfShares(smaller) < num_seeds;
  }

  // Announces the thread's entry and finds the tokens whose entry is `wanted`: those of the share's
  // group, and how many of all groups have a lower rank than the thread's token.
  __device__ uint32_t FindEntries(int entry, int wanted, int* num_before, int* num_found) {
    if (b_.share == 0) WordOf(b_.shared.entries) = static_cast<uint32_t>(entry);
    __syncthreads();
    uint32_t found = 0;
    if (b_.share < kGroups) {
      const auto word = static_cast<uint32_t>(wanted);
      uint4 words[8];
      LoadGroup(b_.shared.entries, words);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint4 four = words[i];
        SetIfEqual(four.x, word, 1u << (4 * i), &found);
        SetIfEqual(four.y, word, 2u << (4 * i), &found);
        SetIfEqual(four.z, word, 4u << (4 * i), &found);
        SetIfEqual(four.w, word, 8u << (4 * i), &found);
      }
    }
    const int place = b_.index - b_.share * 32;
    const uint32_t lower = place <= 0 ? 0u : place >= 32 ? ~0u : (1u << place) - 1;
    const int both = SumOfShares(__popc(found & lower) | __popc(found) << 16);
    *num_before = both & 0xffff;
    *num_found = both >> 16;
    return found;
  }

  // The words of the share's group. All loads begin before the first is used, which the compiler
  // would not see to.
  __device__ void LoadGroup(const GroupWords& groups, uint4 (&words)[8]) const {
    const uint32_t first = SharedAddress(groups[b_.share]);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words[i].x), "=r"(words[i].y), "=r"(words[i].z), "=r"(words[i].w)
                   : "r"(first + 16 * static_cast<uint32_t>(i))
                   : "memory");
    }
  }

  // Two instructions each, which the compiler does not find.
  __device__ static void CountIfLess(uint32_t x, uint32_t y, int* count) {
    asm("{\n.reg .pred p;\nsetp.lt.u32 p, %1, %2;\n@p add.s32 %0, %0, 1;\n}"
        : "+r"(*count)
        : "r"(x), "r"(y));
  }
  __device__ static void SetIfEqual(uint32_t x, uint32_t y, uint32_t bit, uint32_t* word) {
    asm("{\n.reg .pred p;\nsetp.eq.u32 p, %1, %2;\n@p or.b32 %0, %0, %3;\n}"
        : "+r"(*word)
        : "r"(x), "r"(y), "r"(bit));
  }

  // The word of the thread's token.
  __device__ uint32_t& WordOf(GroupWords& words) const {
    return reinterpret_cast<uint32_t*>(words[b_.index >> 5])[b_.index & 31];
  }

  Block& b_;
  int num_exchanges_ = 0;
};

}  // namespace lethe::ovq

#endif  // LETHE_KERNELS_OVQ_OVQ_MATCH_CUDA_CUH_
