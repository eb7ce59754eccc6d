// The merges of full chunks: one cluster of thread blocks a head, a chain over its chunks.
//
// The slots are dealt to the cluster's blocks in tiles of 64; each block holds its slots' keys as
// halves, in shared memory where they fit, and matches all of the chunk's tokens with them. The
// blocks then exchange their best matches, and every block works out the whole assignment and
// updates the slots that it owns. A similarity depends on its token and slot alone and ties go by
// index, so the number of blocks is free.
#include <algorithm>

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
  uint32_t seeds[kMaxTokens / 32];
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
template <int kDim, bool kFull>
class Merger {
 public:
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
        num_tokens_(args.chunk_tokens),
        warp_(static_cast<int>(threadIdx.x) >> 5),
        lane_(ThisLane()) {
    const int64_t row = (sequence.state * args.num_heads + head) * args.max_slots;
    slot_keys_ = args.states.keys + row * KeySize();
    slot_values_ = args.states.values + row * ValueSize();
    counts_ = args.states.counts + row;
    num_groups_ = num_tokens_ / 32;
  }

  __device__ void Run() {
    LoadKeys(ovq::FilledBefore(args_, sequence_, args_.first_chunk));
    const int last = min(args_.first_chunk + args_.segment_chunks, sequence_.num_merges);
    for (int chunk = args_.first_chunk; chunk < last; ++chunk) Merge(chunk);
  }

 private:
  __device__ int KeySize() const { return kFull ? kDim : args_.key_dim; }
  __device__ int ValueSize() const { return kFull ? kDim : args_.value_dim; }
  __device__ int Token(int index) const { return chunk_ * num_tokens_ + index; }
  __device__ bool Owns(int slot) const { return slot / kOwnedSlots % num_blocks_ == block_; }
  __device__ int LocalRow(int slot) const {
    return slot / (kOwnedSlots * num_blocks_) * kOwnedSlots + slot % kOwnedSlots;
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

  __device__ void Merge(int chunk) {
    chunk_ = chunk;
    num_old_ = ovq::FilledBefore(args_, sequence_, chunk);
    const int num_new = ovq::FilledBefore(args_, sequence_, chunk + 1) - num_old_;
    const int index = static_cast<int>(threadIdx.x) % num_tokens_;  // the thread's token
    PrefetchChunk(chunk + 1);
    uint64_t key;
    bool is_seed = false;
    if (num_old_ == 0) {
      // Novelty in the first chunk is the distance from token 0, which itself opens slot 0.
      if (block_ == 0 && warp_ == 0 && lane_.index < kDim / 8) {
        StoreKeyPiece(0, lane_.index, KeyRow(args_, sequence_, head_, Token(0)));
      }
      __syncthreads();
      key = Match(1, index);
      is_seed = SelectSeeds(index == 0 ? 0 : OrderOf(key), index, num_new);
      OpenFirstSlots();
      key = Match(num_new, index);
    } else {
      key = Match(num_old_, index);
      if (num_new > 0) is_seed = SelectSeeds(OrderOf(key), index, num_new);
    }
    Assign(is_seed, SlotOf(key), index);
    FindChanges(index);
    for (int i = warp_; i < shared_.num_changes; i += kWarps) Change(shared_.changes[i]);
    __syncthreads();
  }

  // Brings the next chunk's rows near: what follows in the chain must not wait for memory.
  __device__ void PrefetchChunk(int chunk) const {
    if (chunk >= sequence_.num_merges) return;
    const int lines = (KeySize() + 31) / 32 + (ValueSize() + 31) / 32;
    const int key_lines = (KeySize() + 31) / 32;
    const int share = (num_tokens_ + num_blocks_ - 1) / num_blocks_ * lines;
    for (int i = static_cast<int>(threadIdx.x); i < share; i += kThreads) {
      const int token = i / lines * num_blocks_ + block_;
      if (token >= num_tokens_) break;
      const int line = i % lines;
      const float* row = line < key_lines
                             ? KeyRow(args_, sequence_, head_, chunk * num_tokens_ + token)
                             : ValueRow(args_, sequence_, head_, chunk * num_tokens_ + token);
      const float* address = row + 32 * (line < key_lines ? line : line - key_lines);
      asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
    }
  }

  // The best of the first num_slots slots for the thread's token, over all blocks.
  __device__ uint64_t Match(int num_slots, int index) {
    const int group = warp_ % num_groups_;  // of 32 tokens
    const int part = warp_ / num_groups_;   // of the block's tiles
    const int num_parts = kWarps / num_groups_;
    uint32_t a[2][kDim / 16][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const int row = Token(group * 32 + m * 16 + lane_.g);
      LoadOperand<kDim, kFull>(KeyRow(args_, sequence_, head_, row),
                               KeyRow(args_, sequence_, head_, row + 8), KeySize(), lane_.t, a[m]);
    }
    float best[4];
    int best_slot[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      best[r] = -ovq::Infinity();
      best_slot[r] = 0;
    }
    for (int i = part; (i * num_blocks_ + block_) * kOwnedSlots < num_slots; i += num_parts) {
      const int first = (i * num_blocks_ + block_) * kOwnedSlots;
      for (int n = 0; n < kOwnedSlots && first + n < num_slots; n += 8) {
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
    return Exchange(num_parts, index);
  }

  // Eight slots, at row `local` of keys_, against the warp's 32 tokens: best[r] is of row
  // 8 r + g.
  __device__ void MatchSlots(const uint32_t (&a)[2][kDim / 16][4], int local, int slot,
                             int num_slots, float (&best)[4], int (&best_slot)[4]) {
    float dots[2][4] = {};
#pragma unroll
    for (int pair = 0; pair < kDim / 32; ++pair) {
      const uint4 b = *reinterpret_cast<const uint4*>(
          keys_ + ovq::SharedKey<kDim>(local + lane_.g, 4 * pair + lane_.t));
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        ovq::MmaHalf(dots[m], a[m][2 * pair], b.x, b.y);
        ovq::MmaHalf(dots[m], a[m][2 * pair + 1], b.z, b.w);
      }
    }
    const int column = slot + 2 * lane_.t;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float dot = dots[r >> 1][2 * (r & 1) + e];
        if (dot > best[r] && column + e < num_slots) {
          best[r] = dot;
          best_slot[r] = column + e;
        }
      }
    }
  }

  __device__ uint64_t Exchange(int num_parts, int index) {
    const int share = static_cast<int>(threadIdx.x) / num_tokens_;
    const int num_shares = kThreads / num_tokens_;
    uint64_t key = 0;
    for (int part = 0; part < num_parts; ++part) key = max(key, shared_.candidates[part][index]);
    uint64_t(&exchanged)[kMaxBlocks][kMaxTokens] = shared_.exchanged[num_exchanges_++ & 1];
    if (num_blocks_ == 1) {
      __syncthreads();  // candidates may be written again
      return key;
    }
    for (int there = share; there < num_blocks_; there += num_shares) {
      StoreInBlock(&exchanged[block_][index], there, key);
    }
    SyncCluster(num_blocks_);
    for (int there = 0; there < num_blocks_; ++there) key = max(key, exchanged[there][index]);
    return key;
  }

  // True where the thread's token is among the num_seeds with the smallest (order, rank).
  __device__ bool SelectSeeds(uint32_t order, int index, int num_seeds) {
    const int share = static_cast<int>(threadIdx.x) / num_tokens_;
    if (share == 0) reinterpret_cast<uint32_t*>(shared_.orders)[index] = order;
    __syncthreads();
    if (share < num_groups_) {
      int smaller = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint4 four = shared_.orders[share * 8 + i];
        const int other = share * 32 + i * 4;
        smaller += four.x < order || (four.x == order && other < index) ? 1 : 0;
        smaller += four.y < order || (four.y == order && other + 1 < index) ? 1 : 0;
        smaller += four.z < order || (four.z == order && other + 2 < index) ? 1 : 0;
        smaller += four.w < order || (four.w == order && other + 3 < index) ? 1 : 0;
      }
      shared_.smaller[share][index] = smaller;
    }
    __syncthreads();
    int rank = 0;
    for (int group = 0; group < num_groups_; ++group) rank += shared_.smaller[group][index];
    const bool is_seed = rank < num_seeds;
    const uint32_t ballot = __ballot_sync(0xffffffffu, is_seed);
    if (warp_ < num_groups_ && lane_.index == 0) shared_.seeds[warp_] = ballot;
    __syncthreads();
    return is_seed;
  }

  __device__ bool IsSeed(int index) const {
    return (shared_.seeds[index >> 5] >> (index & 31) & 1) != 0;
  }
  // Slots are taken in rank order.
  __device__ int SeedSlot(int index) const {
    int slot = num_old_;
    for (int group = 0; group < index >> 5; ++group) slot += __popc(shared_.seeds[group]);
    return slot + __popc(shared_.seeds[index >> 5] & ((1u << (index & 31)) - 1));
  }

  // The first chunk's seeds are what its other tokens are matched with.
  __device__ void OpenFirstSlots() {
    constexpr int kPieces = kDim / 8;
    for (int i = static_cast<int>(threadIdx.x); i < num_tokens_ * kPieces; i += kThreads) {
      const int index = i / kPieces;
      if (!IsSeed(index)) continue;
      const int slot = SeedSlot(index);
      if (!Owns(slot)) continue;
      StoreKeyPiece(slot, i % kPieces, KeyRow(args_, sequence_, head_, Token(index)));
    }
    __syncthreads();
  }

  __device__ void Assign(bool is_seed, int slot, int index) {
    if (static_cast<int>(threadIdx.x) < num_tokens_) {
      if (is_seed) slot = SeedSlot(index);
      reinterpret_cast<int*>(shared_.slots_of)[index] = is_seed ? slot | kSeed : slot;
      if (args_.assignments != nullptr && block_ == 0) {
        const int64_t row =
            (static_cast<int64_t>(sequence_index_) * args_.max_merges + chunk_) * args_.num_heads +
            head_;
        args_.assignments[row * num_tokens_ + index] = is_seed ? ~slot : slot;
      }
    }
    if (threadIdx.x == 0) shared_.num_changes = 0;
    __syncthreads();
  }

  // A changed slot stands at the place of the token that opened it, else of the first that joined.
  __device__ void FindChanges(int index) {
    const int share = static_cast<int>(threadIdx.x) / num_tokens_;
    const int entry = reinterpret_cast<const int*>(shared_.slots_of)[index];
    const int slot = entry & ~kSeed;
    if (share < num_groups_) {
      uint32_t joiners = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int4 four = shared_.slots_of[share * 8 + i];
        joiners |= (four.x == slot ? 1u : 0u) << (4 * i);
        joiners |= (four.y == slot ? 2u : 0u) << (4 * i);
        joiners |= (four.z == slot ? 4u : 0u) << (4 * i);
        joiners |= (four.w == slot ? 8u : 0u) << (4 * i);
      }
      shared_.joiners[share][index] = joiners;
    }
    __syncthreads();
    if (share == 0) ListChange(index, entry, slot);
    __syncthreads();
  }

  __device__ void ListChange(int index, int entry, int slot) {
    bool is_change = (entry & kSeed) != 0;
    if (!is_change && num_old_ != 0) {
      int first = 0;
      for (int group = num_groups_ - 1; group >= 0; --group) {
        const uint32_t joiners = shared_.joiners[group][index];
        if (joiners != 0) first = group * 32 + __ffs(static_cast<int>(joiners)) - 1;
      }
      is_change = first == index;
    }
    if (is_change && Owns(slot)) shared_.changes[atomicAdd(&shared_.num_changes, 1)] = index;
    if (block_ == 0 && args_.log_slots != nullptr) {
      args_.log_slots[LogRow(index)] = is_change ? slot : -1;
    }
  }

  __device__ int64_t LogRow(int index) const {
    const int64_t head = static_cast<int64_t>(sequence_index_) * args_.num_heads + head_;
    return (head * args_.segment_chunks + chunk_ - args_.first_chunk) * num_tokens_ + index;
  }

  // By one warp: the slot at a token's place becomes the mean with those that join it.
  __device__ void Change(int index) {
    const int entry = reinterpret_cast<const int*>(shared_.slots_of)[index];
    const int slot = entry & ~kSeed;
    const bool is_seed = (entry & kSeed) != 0;
    uint32_t joiners[kMaxTokens / 32];
    int num_joiners = 0;
#pragma unroll
    for (int group = 0; group < kMaxTokens / 32; ++group) {
      joiners[group] = group < num_groups_ ? shared_.joiners[group][index] : 0;
      num_joiners += __popc(joiners[group]);
    }
    const int count = is_seed ? 1 : counts_[slot];
    const int new_count = count + num_joiners;
#pragma unroll
    for (int i = 0; i < kDim / 64; ++i) {
      const int vector = i * 32 + lane_.index;
      const bool is_key = vector < kDim / 4;
      const int element = 4 * (is_key ? vector : vector - kDim / 4);
      const int size = is_key ? KeySize() : ValueSize();
      float* row = (is_key ? slot_keys_ : slot_values_) + static_cast<int64_t>(slot) * size;
      float4 mean = LoadRow<kFull>(is_seed ? Row(is_key, index) : row, element, size);
      if (num_joiners > 0) {
        const float4 sum = SumOf(joiners, is_key, element, size);
        const auto weight = static_cast<float>(count);
        const auto total = static_cast<float>(new_count);
        mean.x = __fdiv_rn(fmaf(weight, mean.x, sum.x), total);
        mean.y = __fdiv_rn(fmaf(weight, mean.y, sum.y), total);
        mean.z = __fdiv_rn(fmaf(weight, mean.z, sum.z), total);
        mean.w = __fdiv_rn(fmaf(weight, mean.w, sum.w), total);
      }
      if (kFull || element < size) *reinterpret_cast<float4*>(row + element) = mean;
      is_key ? StoreKey(slot, index, element, mean) : StoreValue(index, element, mean);
    }
    __syncwarp();
    if (lane_.index == 0) {
      counts_[slot] = new_count;
      if (args_.log_biases != nullptr) {
        args_.log_biases[LogRow(index)] = ovq::Log2(static_cast<float>(new_count));
      }
    }
  }

  __device__ const float* Row(bool is_key, int index) const {
    return is_key ? KeyRow(args_, sequence_, head_, Token(index))
                  : ValueRow(args_, sequence_, head_, Token(index));
  }

  // The sum in rank order of four elements of the rows of a set of tokens, four rows in flight.
  __device__ float4 SumOf(const uint32_t (&joiners)[kMaxTokens / 32], bool is_key, int element,
                          int size) const {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int group = 0; group < kMaxTokens / 32; ++group) {
      uint32_t rest = joiners[group];
      while (rest != 0) {
        float4 rows[4];
        int num_rows = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (rest == 0) break;
          const int index = group * 32 + __ffs(static_cast<int>(rest)) - 1;
          rest &= rest - 1;
          rows[i] = LoadRow<kFull>(Row(is_key, index), element, size);
          ++num_rows;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (i >= num_rows) break;
          sum = make_float4(sum.x + rows[i].x, sum.y + rows[i].y, sum.z + rows[i].z,
                            sum.w + rows[i].w);
        }
      }
    }
    return sum;
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
  const int num_tokens_;
  const int warp_;
  const Lane lane_;
  int num_groups_;  // of 32 tokens
  float* slot_keys_;
  float* slot_values_;
  int32_t* counts_;
  int chunk_ = 0;
  int num_old_ = 0;
  int num_exchanges_ = 0;
};

// Grid: (blocks of a cluster x heads, sequences); 512 threads; shared memory: Shared and, if it
// fits, capacity keys.
template <int kDim, bool kFull, bool kAreKeysShared>
__global__ void __launch_bounds__(kThreads, 1)
    OvqMergeKernel(const __grid_constant__ OvqKernelArgs args, int num_blocks,
                   uint16_t* global_keys) {
  extern __shared__ uint4 shared_memory[];
  const int sequence_index = static_cast<int>(blockIdx.y);
  const Sequence sequence = GetSequence(args, sequence_index);
  if (args.first_chunk >= sequence.num_merges) return;  // so does the whole cluster
  const int block = static_cast<int>(blockIdx.x) % num_blocks;
  const int head = static_cast<int>(blockIdx.x) / num_blocks;
  auto* shared = reinterpret_cast<Shared*>(shared_memory);
  uint16_t* keys;
  if constexpr (kAreKeysShared) {
    keys = reinterpret_cast<uint16_t*>(shared + 1);
  } else {
    keys = global_keys +
           (static_cast<int64_t>(sequence_index) * args.num_heads + head) * args.capacity * kDim;
  }
  Merger<kDim, kFull>(args, sequence, sequence_index, head, block, num_blocks, keys, shared).Run();
}

// Bytes of a block's shared memory with its keys; rounded up to whole tiles.
size_t SharedBytes(int dim, int num_blocks, int64_t max_filled) {
  const int64_t tiles = (max_filled + kOwnedSlots - 1) / kOwnedSlots;
  const int64_t rows = (tiles + num_blocks - 1) / num_blocks * kOwnedSlots;
  return sizeof(Shared) + static_cast<size_t>(rows * dim) * sizeof(uint16_t);
}

template <int kDim, bool kFull, bool kAreKeysShared>
absl::Status Launch(Queue* queue, const OvqKernelArgs& args, int num_blocks, size_t bytes) {
  const auto kernel = &OvqMergeKernel<kDim, kFull, kAreKeysShared>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       static_cast<int>(bytes));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(num_blocks * args.num_heads),
                        static_cast<unsigned>(args.num_sequences));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = bytes;
  config.stream = queue->stream();
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(num_blocks), 1, 1};
  config.attrs = &cluster;
  config.numAttrs = num_blocks > 1 ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, args, num_blocks, args.merge_keys);
  return queue->LaunchStatus("OvqMergeKernel");
}

template <int kDim, bool kFull>
absl::Status Launch(Queue* queue, const OvqKernelArgs& args, int64_t max_filled) {
  const size_t most = queue->compute_capability() >= 90 ? size_t{227} << 10 : size_t{99} << 10;
  const int num_chains = args.num_heads * args.num_sequences;
  // As many blocks a head as the device has room for: they cost exchanges, but share the work.
  int num_blocks = 1;
  if (queue->compute_capability() >= 90) {
    while (num_blocks < kMaxBlocks &&
           (2 * num_blocks * num_chains <= queue->num_multiprocessors() ||
            SharedBytes(kDim, num_blocks, max_filled) > most)) {
      num_blocks *= 2;
    }
  }
  const size_t bytes = SharedBytes(kDim, num_blocks, max_filled);
  if (bytes <= most) return Launch<kDim, kFull, true>(queue, args, num_blocks, bytes);
  return Launch<kDim, kFull, false>(queue, args, 1, sizeof(Shared));
}

}  // namespace

absl::Status OvqLaunchMerge(Queue* queue, const OvqKernelArgs& args, int dim, int64_t max_filled) {
  const bool is_full = args.key_dim == dim && args.value_dim == dim;
  if (dim == 64) {
    return is_full ? Launch<64, true>(queue, args, max_filled)
                   : Launch<64, false>(queue, args, max_filled);
  }
  return is_full ? Launch<128, true>(queue, args, max_filled)
                 : Launch<128, false>(queue, args, max_filled);
}

}  // namespace lethe
