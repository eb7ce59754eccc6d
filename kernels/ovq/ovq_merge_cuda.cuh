// What the parts of OVQ's merge share: a block of a head's cluster, with its slots' and its chunk's
// keys in shared memory.
//
// The slots are dealt to a cluster's blocks in tiles of 64; each block holds its slots' keys as
// halves and matches all of the chunk's tokens with them; then the blocks exchange their best
// matches, every block works out the whole assignment and changes the slots that it owns. A
// similarity depends on its token and slot alone and ties go by index, so the number of blocks is
// free.
#ifndef LETHE_KERNELS_OVQ_OVQ_MERGE_CUDA_CUH_
#define LETHE_KERNELS_OVQ_OVQ_MERGE_CUDA_CUH_

#include <cstdint>

#include "kernels/ovq/ovq_cuda.cuh"

namespace lethe::ovq {

constexpr int kMergeThreads = 512;
constexpr int kMergeWarps = kMergeThreads / 32;
constexpr int kMaxTokens = 128;
constexpr int kMaxParts = 8;  // of a block's slots, for 64 tokens; 4 for 128
constexpr int kOwnedSlots = 64;
constexpr int kSeed = 1 << 30;  // marks a token that opens a slot

// What the order of similarities does not see: their last bits, below 2^-15. In their place stand a
// slot's place among those that a lane compares, or a token's rank.
constexpr uint32_t kPlaceBits = 127;

// Of the best of a token's similarities plus 2, as the lane's integer: an integer that is largest
// for the most similar and then the lowest slot.
__device__ inline uint64_t MatchKey(int best, int slot) {
  const uint32_t order = (static_cast<uint32_t>(best) ^ 0x80000000u) & ~kPlaceBits;
  return (static_cast<uint64_t>(order) << 32) | (0xffffffffu - static_cast<uint32_t>(slot));
}
__device__ inline int SlotOf(uint64_t key) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(key));
}
__device__ inline uint32_t OrderOf(uint64_t key) { return static_cast<uint32_t>(key >> 32); }

// Words of 32 tokens each: padded, so that lanes that read different groups touch different banks.
using GroupWords = uint4[kMaxTokens / 32][9];

struct alignas(16) SlotChange {
  int slot;         // with kSeed where a token opens it
  int index;        // of that token, else of the first that joins it
  int num_joiners;  // a token that opens a slot is none
  float weight;     // of the slot before
  float total;
  float inverse;  // 1 / total
};

struct MergeShared {
  uint64_t exchanges[2];                            // barriers
  uint64_t candidates[kMaxParts * kMaxTokens / 2];  // by part of the block's slots and token
  GroupWords orders;                                // similarities, with ranks: all different
  GroupWords entries;                               // the assignment, with kSeed
  uint32_t joiners[kMaxTokens / 32][kMaxTokens];    // of each token's slot
  const float* rows[2][2][kMaxTokens];              // by chunk mod 2: keys and values of the tokens
  int num_filled[kOvqMaxSegmentChunks + 1];         // at the start of the segment's chunks
  SlotChange changes[kMaxTokens];                   // of this block's slots
  int num_changes;
  Sequence sequence;
  float* slot_keys;  // of the head
  float* slot_values;
  int32_t* counts;
};

// Blocks of a cluster send each other values that a barrier in the receiver's shared memory counts.
// So they need not meet: a cluster's barrier would wait for their stores and empty the first cache.
__device__ inline void InitBarrier(uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(SharedAddress(barrier)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
__device__ inline void ExpectBytes(uint64_t* barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
#endif
}
__device__ inline void SendToBlock(uint64_t* address, uint64_t* barrier, int block,
                                   uint64_t value) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .b32 to, counter;\n"
      "mapa.shared::cluster.u32 to, %0, %2;\n"
      "mapa.shared::cluster.u32 counter, %1, %2;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [to], %3, [counter];\n}" ::
          "r"(SharedAddress(address)),
      "r"(SharedAddress(barrier)), "r"(block), "l"(value)
      : "memory");
#endif
}
__device__ inline void WaitForBytes(uint64_t* barrier, int phase) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .pred is_done;\n"
      "wait:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 is_done, [%0], %1;\n"
      "@!is_done bra wait;\n}" ::"r"(SharedAddress(barrier)),
      "r"(phase)
      : "memory");
#endif
}

// All blocks of the cluster meet.
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

// What a block's shared memory holds behind MergeShared.
struct MergeArrays {
  uint64_t* exchanged;  // [2][num_blocks][kTokens]: by exchange mod 2 and block
  uint16_t* tokens;     // [tiles of 16][steps][lanes][8]: left operands, the chunk's keys
  uint16_t* keys;       // [slots that the block owns] rows of halves
  int32_t* slot_rows;   // [slots that the block owns]: where a slot's row is
};

template <int kDim, bool kFull, int kTokens>
struct MergeBlock {
  static constexpr int kGroups = kTokens / 32;             // of 32 tokens
  static constexpr int kShares = kMergeThreads / kTokens;  // threads that have the same token
  static constexpr int kPieces = kDim / 8;                 // of a row of halves
  static constexpr int kSteps = kDim / 16;                 // of a dot product
  static constexpr int kStaged = kTokens / 16 * kSteps / kMergeWarps;

  const OvqKernelArgs& args;
  MergeShared& shared;
  const MergeArrays arrays;
  const Sequence& sequence;  // in shared memory, where it is set
  const int sequence_index;
  const int head;
  const int block;
  const int num_blocks;
  const int block_shift;  // log2 num_blocks
  const int index;        // the thread's token
  const int share;
  const int warp;
  const Lane lane;
  const int last_chunk;
  int chunk = 0;
  int num_old = 0;  // slots at the chunk's start

  __device__ MergeBlock(const OvqKernelArgs& args, int sequence_index, int head, int block,
                        int num_blocks, const MergeArrays& arrays, MergeShared* shared)
      : args(args),
        shared(*shared),
        arrays(arrays),
        sequence(shared->sequence),
        sequence_index(sequence_index),
        head(head),
        block(block),
        num_blocks(num_blocks),
        block_shift((num_blocks > 1 ? 1 : 0) + (num_blocks > 2 ? 1 : 0) + (num_blocks > 4 ? 1 : 0)),
        index(static_cast<int>(threadIdx.x) / kShares),
        share(static_cast<int>(threadIdx.x) % kShares),
        warp(static_cast<int>(threadIdx.x) >> 5),
        lane(ThisLane()),
        last_chunk(min(args.first_chunk + args.segment_chunks, shared->sequence.num_merges)) {}

  __device__ int KeySize() const { return kFull ? kDim : args.key_dim; }
  __device__ int ValueSize() const { return kFull ? kDim : args.value_dim; }
  __device__ bool Owns(int slot) const { return (slot / kOwnedSlots & (num_blocks - 1)) == block; }
  __device__ int LocalRow(int slot) const {
    return (slot / kOwnedSlots >> block_shift) * kOwnedSlots + (slot & (kOwnedSlots - 1));
  }

  __device__ int SlotOfLocal(int row) const {
    return ((row / kOwnedSlots << block_shift) + block) * kOwnedSlots + (row & (kOwnedSlots - 1));
  }

  // Nothing of the merged tokens stays.
  __device__ void ClearPending() const {
    const int64_t row = (sequence.state * args.num_heads + head) * kTokens;
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * KeySize(); i += kMergeThreads) {
      args.states.pending_keys[row * KeySize() + i] = 0.0f;
    }
    for (int i = static_cast<int>(threadIdx.x); i < kTokens * ValueSize(); i += kMergeThreads) {
      args.states.pending_values[row * ValueSize() + i] = 0.0f;
    }
  }

  __device__ void LoadKeys(int num_filled) {
    for (int tile = block; tile * kOwnedSlots < num_filled; tile += num_blocks) {
      for (int i = static_cast<int>(threadIdx.x); i < kOwnedSlots * kPieces; i += kMergeThreads) {
        const int slot = tile * kOwnedSlots + i / kPieces;
        if (slot >= num_filled) break;
        StoreKeyPiece(slot, i % kPieces, shared.slot_keys + static_cast<int64_t>(slot) * KeySize());
      }
    }
    __syncthreads();
  }

  __device__ void StoreKeyPiece(int slot, int piece, const float* row) {
    *reinterpret_cast<uint4*>(arrays.keys + SharedKey<kDim>(LocalRow(slot), piece)) =
        KeyPiece<kFull>(row, piece, KeySize());
  }

  // Finds a chunk's rows and brings them near, the blocks a part of them each: what follows in the
  // chain must not wait for memory.
  __device__ void PrepareChunk(int chunk) {
    const int i = static_cast<int>(threadIdx.x);
    if (chunk >= last_chunk || i >= 2 * kTokens) return;
    const bool is_value = i >= kTokens;
    const int index = is_value ? i - kTokens : i;
    const int token = chunk * kTokens + index;
    const float* row =
        is_value ? ValueRow(args, sequence, head, token) : KeyRow(args, sequence, head, token);
    shared.rows[chunk & 1][is_value ? 1 : 0][index] = row;
    if ((index & (num_blocks - 1)) == block) {
      PrefetchLines(row, is_value ? ValueSize() : KeySize(), 0, 1);
    }
  }

  // The prepared chunk's keys, on their way to StoreTokens: rows g and g + 8 of a tile.
  using Staged = float4[kStaged][2];
  __device__ void LoadTokens(int chunk, Staged& staged) const {
#pragma unroll
    for (int i = 0; i < kStaged; ++i) {
      const int tile = (i * kMergeWarps + warp) / kSteps;
      const int step = (i * kMergeWarps + warp) % kSteps;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = 16 * tile + 8 * r + lane.g;
        staged[i][r] = LoadRow<kFull>(chunk < last_chunk ? shared.rows[chunk & 1][0][row] : nullptr,
                                      16 * step + 4 * lane.t, KeySize());
      }
    }
  }
  __device__ void StoreTokens(const Staged& staged) const {
#pragma unroll
    for (int i = 0; i < kStaged; ++i) {
      const float4 x = staged[i][0];
      const float4 y = staged[i][1];
      *TokenOperand(i * kMergeWarps + warp) = make_uint4(
          PackHalves(x.x, x.y), PackHalves(y.x, y.y), PackHalves(x.z, x.w), PackHalves(y.z, y.w));
    }
  }
  // The lane's left operand of a tile of 16 tokens and a step: `place` is tile kSteps + step.
  __device__ uint4* TokenOperand(int place) const {
    return reinterpret_cast<uint4*>(arrays.tokens) + place * 32 + lane.index;
  }

  __device__ const float* RowOf(bool is_value, int index) const {
    return shared.rows[chunk & 1][is_value ? 1 : 0][index];
  }

  __device__ int64_t Chain() const {
    return static_cast<int64_t>(sequence_index) * args.num_heads + head;
  }
  // Of the head's rows the first of those that the chunk changes.
  __device__ int ChangedRow() const { return args.capacity + (chunk - args.first_chunk) * kTokens; }
};

}  // namespace lethe::ovq

#endif  // LETHE_KERNELS_OVQ_OVQ_MERGE_CUDA_CUH_
