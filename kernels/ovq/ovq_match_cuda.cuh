// The matching half of OVQ's merge: which slot is each token of a chunk most
// similar to, which tokens open slots, and which slots change.
#ifndef LETHE_KERNELS_OVQ_OVQ_MATCH_CUDA_CUH_
#define LETHE_KERNELS_OVQ_OVQ_MATCH_CUDA_CUH_

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

 public:
  __device__ explicit Matcher(Block* block) : b_(*block) {}

  __device__ void Assign(int num_new) {
    const uint64_t key = Match(b_.num_old);
    int slot = SlotOf(key);
    WarmSlot(slot);
    typename Block::Staged staged;
    b_.LoadTokens(b_.chunk + 1, staged);
    const bool is_seed = num_new > 0 && IsSeed(OrderOf(key), num_new);
    const int entry = is_seed ? kSeed : slot;
    int num_before = 0;
    const uint32_t found = FindEntries(entry, entry, &num_before);
    b_.StoreTokens(staged);
    // Slots are taken in rank order. A changed slot stands at the place of the
    // token that opened it, else of the first that joined.
    if (is_seed) slot = b_.num_old + num_before;
    List(is_seed, is_seed || num_before == 0, slot, is_seed ? 0u : found);
  }

  // Novelty in the first chunk is the distance from token 0, which itself opens
  // slot 0; then the other tokens are matched with the slots that the seeds
  // open.
  __device__ void AssignFirst(int num_new) {
    if (b_.block == 0 && b_.warp == 0 && b_.lane.index < kDim / 8) {
      b_.StoreKeyPiece(0, b_.lane.index, b_.RowOf(false, 0));
    }
    __syncthreads();
    const uint64_t first_key = Match(1);
    const bool is_seed = IsSeed(b_.index == 0 ? 0 : OrderOf(first_key), num_new);
    int slot = 0;
    FindEntries(is_seed ? kSeed : 0, kSeed, &slot);
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
    const uint32_t found = FindEntries(is_seed ? slot | kSeed : slot, slot, &num_before);
    List(is_seed, is_seed, slot, found);
  }

  // Tells the reads that the merges before a chunk are done.
  __device__ void Publish(int chunk) const {
    if (b_.args.progress == nullptr || b_.block != 0 || threadIdx.x != 0) return;
    if (chunk <= b_.args.first_chunk) return;
    const int64_t chain = static_cast<int64_t>(b_.sequence_index) * b_.args.num_heads + b_.head;
    __threadfence();
    asm volatile("st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(b_.args.progress + chain), "r"(chunk)
                 : "memory");
  }

  // What was on its way has come.
  __device__ void FinishLoads() const {
    Warmed(slot_line_);
    Warmed(count_line_);
  }

 private:
  // The slot that the thread's token will join, likewise.
  __device__ void WarmSlot(int slot) {
    if (!b_.Owns(slot)) return;
    const bool is_value = b_.share % 2 != 0;
    const int element = b_.share / 2 * 32;
    const int size = is_value ? b_.ValueSize() : b_.KeySize();
    const float* rows = is_value ? b_.shared.slot_values : b_.shared.slot_keys;
    if (element < size) slot_line_ = Warm(rows + static_cast<int64_t>(slot) * size + element);
    if (b_.share == 0) count_line_ = Warm(reinterpret_cast<const float*>(b_.shared.counts + slot));
  }

  // Notes a token's slot and which tokens join that.
  __device__ void List(bool is_seed, bool is_change, int slot, uint32_t joiners) {
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
    b_.shared.slots_of[b_.index] = is_seed ? slot | kSeed : slot;
    b_.shared.changes[atomicAdd(&b_.shared.num_changes, 1)] = b_.index;
  }

  // The best of the first num_slots slots for the thread's token, over all
  // blocks.
  __device__ uint64_t Match(int num_slots) {
    const int group = b_.warp % kGroups;  // of 32 tokens
    const int part = b_.warp / kGroups;   // of the block's batches of slots
    uint32_t a[2][kDim / 16][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) LoadTokenOperand(group * 32 + m * 16 + b_.lane.g, a[m]);
    float best[4];
    int best_slot[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      best[r] = -Infinity();
      best_slot[r] = 0;
    }
#pragma unroll 1
    for (int row = part * kBatchSlots;; row += kParts * kBatchSlots) {
      const int first = b_.SlotOfLocal(row);
      if (first >= num_slots) break;
      if (first + kBatchSlots <= num_slots) {
        MatchSlots<true>(a, row, first, num_slots, best, best_slot);
      } else {
        MatchSlots<false>(a, row, first, num_slots, best, best_slot);
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      uint64_t key = MatchKey(best[r], best_slot[r]);
      key = max(key, __shfl_xor_sync(0xffffffffu, key, 1));
      key = max(key, __shfl_xor_sync(0xffffffffu, key, 2));
      if (b_.lane.t == 0) {
        b_.shared.candidates[part * kTokens + group * 32 + r * 8 + b_.lane.g] = key;
      }
    }
    __syncthreads();
    return Exchange();
  }

  __device__ void LoadTokenOperand(int row, uint32_t (&a)[kDim / 16][4]) const {
#pragma unroll
    for (int pair = 0; pair < kDim / 32; ++pair) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint4 x = *reinterpret_cast<const uint4*>(
            b_.arrays.tokens + SharedKey<kDim>(row + 8 * r, 4 * pair + b_.lane.t));
        a[2 * pair][r] = x.x;
        a[2 * pair][2 + r] = x.y;
        a[2 * pair + 1][r] = x.z;
        a[2 * pair + 1][2 + r] = x.w;
      }
    }
  }

  // A batch of slots, at row `local` of the keys, against the warp's 32 tokens:
  // best[r] is of row 8 r + g. Rows beyond num_slots hold anything.
  template <bool kAll>
  __device__ void MatchSlots(const uint32_t (&a)[2][kDim / 16][4], int local, int slot,
                             int num_slots, float (&best)[4], int (&best_slot)[4]) {
    float dots[kMatched][2][4] = {};
    const KeyLane<kDim> key_lane(b_.arrays.keys, local, b_.lane);
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
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = slot + 8 * n + 2 * b_.lane.t + e;
        const bool is_set = kAll || column < num_slots;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const float dot = dots[n][r >> 1][2 * (r & 1) + e];
          if (is_set && dot > best[r]) {
            best[r] = dot;
            best_slot[r] = column;
          }
        }
      }
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
    uint64_t* exchanged = b_.arrays.exchanged + (num_exchanges_++ & 1) * b_.num_blocks * kTokens;
    for (int there = b_.share; there < b_.num_blocks; there += kShares) {
      StoreInBlock(exchanged + b_.block * kTokens + b_.index, there, key);
    }
    // What other blocks did before the last exchange has been seen here.
    SyncCluster(b_.num_blocks, [&] {
      if (b_.args.is_overlapped) Publish(b_.chunk - 1);
    });
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

  // True where the thread's token is among the num_seeds with the smallest
  // (order, rank).
  __device__ bool IsSeed(uint32_t order, int num_seeds) {
    if (b_.share == 0) WordOf(b_.shared.orders) = order;
    __syncthreads();
    int smaller = 0;
    if (b_.share < kGroups) {
      const int place = b_.index - b_.share * 32;  // lower ranks win ties
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint4 four = b_.shared.orders[b_.share][i];
        smaller += four.x < order + (4 * i < place ? 1 : 0) ? 1 : 0;
        smaller += four.y < order + (4 * i + 1 < place ? 1 : 0) ? 1 : 0;
        smaller += four.z < order + (4 * i + 2 < place ? 1 : 0) ? 1 : 0;
        smaller += four.w < order + (4 * i + 3 < place ? 1 : 0) ? 1 : 0;
      }
    }
    return SumOfShares(smaller) < num_seeds;
  }

  // Announces the thread's entry and finds the tokens whose entry is `wanted`:
  // those of the share's group, and how many of all groups have a lower rank
  // than the thread's token.
  __device__ uint32_t FindEntries(int entry, int wanted, int* num_before) {
    if (b_.share == 0) WordOf(b_.shared.entries) = static_cast<uint32_t>(entry);
    __syncthreads();
    uint32_t found = 0;
    if (b_.share < kGroups) {
      const auto word = static_cast<uint32_t>(wanted);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint4 four = b_.shared.entries[b_.share][i];
        found |= four.x == word ? 1u << (4 * i) : 0u;
        found |= four.y == word ? 2u << (4 * i) : 0u;
        found |= four.z == word ? 4u << (4 * i) : 0u;
        found |= four.w == word ? 8u << (4 * i) : 0u;
      }
    }
    const int place = b_.index - b_.share * 32;
    const uint32_t lower = place <= 0 ? 0u : place >= 32 ? ~0u : (1u << place) - 1;
    *num_before = SumOfShares(__popc(found & lower));
    return found;
  }

  // The word of the thread's token.
  __device__ uint32_t& WordOf(GroupWords& words) const {
    return reinterpret_cast<uint32_t*>(words[b_.index >> 5])[b_.index & 31];
  }

  Block& b_;
  int num_exchanges_ = 0;
  float slot_line_ = 0.0f;  // on their way
  float count_line_ = 0.0f;
};

}  // namespace lethe::ovq

#endif  // LETHE_KERNELS_OVQ_OVQ_MATCH_CUDA_CUH_
