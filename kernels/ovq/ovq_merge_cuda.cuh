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
constexpr int kMaxBlocks = 8;  // of a cluster
constexpr int kMaxParts = 8;   // of a block's slots, for 64 tokens; 4 for 128
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

// `meanwhile` is done by each thread while the other blocks come.
template <typename Meanwhile>
__device__ inline void SyncCluster(int num_blocks, const Meanwhile& meanwhile) {
#if __CUDA_ARCH__ >= 900
  if (num_blocks > 1) {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    meanwhile();
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    return;
  }
#endif
  static_cast<void>(num_blocks);
  __syncthreads();
}
__device__ inline void SyncCluster(int num_blocks) {
  SyncCluster(num_blocks, [] {});
}

// What a block's shared memory holds behind MergeShared.
struct MergeArrays {
  uint64_t* exchanged;  // [2][num_blocks][kTokens]: by exchange mod 2 and block
  uint16_t* tokens;     // [kTokens] rows of halves: the chunk's keys
  uint16_t* keys;       // [slots that the block owns] rows of halves
  int32_t* slot_rows;   // [slots that the block owns]: where a slot's row is
};

template <int kDim, bool kFull, int kTokens>
struct MergeBlock {
  static constexpr int kGroups = kTokens / 32;             // of 32 tokens
  static constexpr int kShares = kMergeThreads / kTokens;  // threads that have the same token
  static constexpr int kPieces = kDim / 8;                 // of a row of halves
  static constexpr int kStaged = kTokens * kPieces / kMergeThreads;

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
  int num_old = 0;             // slots at the chunk's start
  float warm[kDim / 32] = {};  // lines on their way

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

  // Finds a chunk's rows and brings them near: what follows in the chain must not wait for memory.
  __device__ void PrepareChunk(int chunk) {
    const int i = static_cast<int>(threadIdx.x);
    if (chunk >= last_chunk || i >= 2 * kTokens) return;
    const bool is_value = i >= kTokens;
    const int index = is_value ? i - kTokens : i;
    const int token = chunk * kTokens + index;
    const float* row =
        is_value ? ValueRow(args, sequence, head, token) : KeyRow(args, sequence, head, token);
    shared.rows[chunk & 1][is_value ? 1 : 0][index] = row;
    const int size = is_value ? ValueSize() : KeySize();
#pragma unroll
    for (int line = 0; line < kDim / 32; ++line) {
      warm[line] = kFull || 32 * line < size ? Warm(row + 32 * line) : 0.0f;
    }
  }

  // The prepared chunk's keys, on their way to StoreTokens.
  using Staged = float4[kStaged][2];
  __device__ void LoadTokens(int chunk, Staged& staged) const {
#pragma unroll
    for (int i = 0; i < kStaged; ++i) {
      const int place = i * kMergeThreads + static_cast<int>(threadIdx.x);
      const int piece = place % kPieces;
      const int dim = (piece >> 2) * 32 + (piece & 3) * 4;
      const float* row = chunk < last_chunk ? shared.rows[chunk & 1][0][place / kPieces] : nullptr;
      staged[i][0] = LoadRow<kFull>(row, dim, KeySize());
      staged[i][1] = LoadRow<kFull>(row, dim + 16, KeySize());
    }
  }
  __device__ void StoreTokens(const Staged& staged) const {
#pragma unroll
    for (int i = 0; i < kStaged; ++i) {
      const int place = i * kMergeThreads + static_cast<int>(threadIdx.x);
      const float4 x = staged[i][0];
      const float4 y = staged[i][1];
      *reinterpret_cast<uint4*>(arrays.tokens + SharedKey<kDim>(place / kPieces, place % kPieces)) =
          make_uint4(PackHalves(x.x, x.y), PackHalves(x.z, x.w), PackHalves(y.x, y.y),
                     PackHalves(y.z, y.w));
    }
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
