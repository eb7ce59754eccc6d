// The merges of full chunks: one cluster of thread blocks a head, a chain over its chunks. Every
// block works out the whole assignment and updates the slots that it owns.
#include <algorithm>

#include <cuda_runtime.h>

#include "kernels/base/status_macros.h"
#include "kernels/ovq/ovq_match_cuda.cuh"

namespace lethe {
namespace {

using ovq::GetSequence;
using ovq::kMaxBlocks;
using ovq::kMaxTokens;
using ovq::kMergeThreads;
using ovq::kMergeWarps;
using ovq::kOwnedSlots;
using ovq::kSeed;
using ovq::LoadRow;
using ovq::MergeShared;
using ovq::OrderOf;
using ovq::Sequence;
using ovq::SlotOf;

// One head's merges, by one block of its cluster.
template <int kDim, bool kFull, int kTokens>
class Merger : private ovq::Matcher<kDim, kFull, kTokens> {
  using Base = ovq::Matcher<kDim, kFull, kTokens>;

 public:
  using Base::Base;

  __device__ void Run() {
    num_old_ = ovq::FilledBefore(args_, sequence_, args_.first_chunk);
    LoadKeys(num_old_);
    last_chunk_ = min(args_.first_chunk + args_.segment_chunks, sequence_.num_merges);
    PrepareChunk(args_.first_chunk);
    __syncthreads();
#pragma unroll 1
    for (chunk_ = args_.first_chunk; chunk_ < last_chunk_; ++chunk_) Merge();
    ovq::SyncCluster(num_blocks_);
    // OvqAppendKernel is for the other sequences.
    if (sequence_.length == 1 && block_ == 0) ClearPending();
  }

 private:
  __device__ void Merge() {
    const int num_filled = shared_.num_filled[chunk_ & 1];
    const int num_new = num_filled - num_old_;
    const int64_t chain = static_cast<int64_t>(sequence_index_) * args_.num_heads + head_;
    log_row_ = (chain * args_.segment_chunks + chunk_ - args_.first_chunk) * kTokens;
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
    for (int i = warp_; i < shared_.num_changes; i += kMergeWarps) Change(shared_.changes[i]);
    num_old_ = num_filled;
#pragma unroll
    for (float line : warm_) ovq::Warmed(line);
    ovq::Warmed(slot_line_);
    ovq::Warmed(count_line_);
    __syncthreads();
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

  __device__ int64_t LogRow(int index) const { return log_row_ + index; }

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

  using Base::args_;
  using Base::block_;
  using Base::chunk_;
  using Base::ClearPending;
  using Base::counts_;
  using Base::head_;
  using Base::index_;
  using Base::keys_;
  using Base::KeySize;
  using Base::kGroups;
  using Base::lane_;
  using Base::last_chunk_;
  using Base::LoadKeys;
  using Base::LocalRow;
  using Base::Match;
  using Base::num_blocks_;
  using Base::num_old_;
  using Base::OpenFirstSlots;
  using Base::Owns;
  using Base::PrepareChunk;
  using Base::RowOf;
  using Base::SeedSlot;
  using Base::SelectSeeds;
  using Base::sequence_;
  using Base::sequence_index_;
  using Base::share_;
  using Base::shared_;
  using Base::slot_keys_;
  using Base::slot_values_;
  using Base::StoreKeyPiece;
  using Base::ValueSize;
  using Base::warm_;
  using Base::warp_;

  int64_t log_row_ = 0;     // of the chunk's first token
  float slot_line_ = 0.0f;  // on their way
  float count_line_ = 0.0f;
};

// Grid: clusters of num_blocks, which take the heads of the sequences in turn; 512 threads; shared
// memory: MergeShared and, in the tuned form, the keys. The other form is for dimensions that are not
// kDim and for slots that do not fit; it has one block a head.
template <int kDim, bool kTuned, int kTokens>
__global__ void __launch_bounds__(kMergeThreads, 1)
    OvqMergeKernel(const __grid_constant__ OvqKernelArgs args, int num_blocks) {
  extern __shared__ uint4 shared_memory[];
  auto* shared = reinterpret_cast<MergeShared*>(shared_memory);
  const int block = static_cast<int>(blockIdx.x) % num_blocks;
  const int first = static_cast<int>(blockIdx.x) / num_blocks;
  const int num_clusters = static_cast<int>(gridDim.x) / num_blocks;
  const int num_chains = args.num_heads * args.num_sequences;
  // In a decode there is nothing to do as a rule: that is found out at once.
  bool is_due = false;
  for (int chain = first + static_cast<int>(threadIdx.x) * num_clusters; chain < num_chains;
       chain += kMergeThreads * num_clusters) {
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
  return sizeof(MergeShared) + static_cast<size_t>(rows * dim) * sizeof(uint16_t);
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
  config.blockDim = dim3(kMergeThreads);
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
  return Launch<kDim, false, kTokens>(queue, args, 1, sizeof(MergeShared));
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
