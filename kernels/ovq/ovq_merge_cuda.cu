// The merges of full chunks: one cluster of thread blocks a head, a chain over its chunks. Every
// block works out the whole assignment and updates the slots that it owns.
#include <algorithm>

#include <cuda_runtime.h>

#include "kernels/base/status_macros.h"
#include "kernels/ovq/ovq_change_cuda.cuh"
#include "kernels/ovq/ovq_match_cuda.cuh"

namespace lethe {
namespace {

using ovq::GetSequence;
using ovq::kMergeThreads;
using ovq::kOwnedSlots;
using ovq::MergeShared;
using ovq::Sequence;

// One head's merges, by one block of its cluster.
template <int kDim, bool kFull, int kTokens>
class Merger {
  using Block = ovq::MergeBlock<kDim, kFull, kTokens>;

 public:
  __device__ Merger(Block* block, ovq::Matcher<kDim, kFull, kTokens>* matcher)
      : b_(*block), matcher_(*matcher) {}

  __device__ void Run() {
    const int first_chunk = b_.args.first_chunk;
    for (int i = static_cast<int>(threadIdx.x); i <= b_.last_chunk - first_chunk;
         i += kMergeThreads) {
      b_.shared.num_filled[i] = ovq::FilledBefore(b_.args, b_.sequence, first_chunk + i);
    }
    b_.PrepareChunk(first_chunk);
    b_.num_old = ovq::FilledBefore(b_.args, b_.sequence, first_chunk);
    b_.LoadKeys(b_.num_old);
    typename Block::Staged staged;
    b_.LoadTokens(first_chunk, staged);
    b_.StoreTokens(staged);
    for (int row = static_cast<int>(threadIdx.x); b_.SlotOfLocal(row) < b_.num_old;
         row += kMergeThreads) {
      b_.arrays.slot_rows[row] = b_.SlotOfLocal(row);
    }
    if (threadIdx.x == 0 && b_.num_blocks > 1) {
      for (uint64_t& barrier : b_.shared.exchanges) ovq::InitBarrier(&barrier);
    }
    ovq::SyncCluster(b_.num_blocks);  // all are there
#pragma unroll 1
    for (b_.chunk = first_chunk; b_.chunk < b_.last_chunk; ++b_.chunk) Merge();
    StoreIndex();
    ovq::SyncCluster(b_.num_blocks);
    matcher_.Publish(b_.last_chunk);
    // OvqAppendKernel is for the other sequences.
    if (b_.sequence.length == 1 && b_.block == 0) b_.ClearPending();
  }

 private:
  __device__ void Merge() {
    const int num_filled = b_.shared.num_filled[b_.chunk - b_.args.first_chunk + 1];
    const int num_new = num_filled - b_.num_old;
    if (threadIdx.x == 0) b_.shared.num_changes = 0;
    StoreIndex();
    b_.PrepareChunk(b_.chunk + 1);
    b_.num_old == 0 ? matcher_.AssignFirst(num_new) : matcher_.Assign(num_new);
    __syncthreads();  // the changes are known
    ovq::Changer<kDim, kFull, kTokens>(b_).ChangeAll();
    b_.num_old = num_filled;
    __syncthreads();
  }

  // Where the slots are at the start of the chunk.
  __device__ void StoreIndex() const {
    const int place = b_.chunk - b_.args.first_chunk;
    if (b_.args.row_index == nullptr || place == 0 || place >= b_.args.segment_chunks) return;
    int32_t* index =
        b_.args.row_index + (b_.Chain() * b_.args.segment_chunks + place) * b_.args.capacity;
    for (int row = static_cast<int>(threadIdx.x); b_.SlotOfLocal(row) < b_.num_old;
         row += kMergeThreads) {
      index[b_.SlotOfLocal(row)] = b_.arrays.slot_rows[row];
    }
  }

  Block& b_;
  ovq::Matcher<kDim, kFull, kTokens>& matcher_;
};

// Grid: clusters of num_blocks, which take the heads of the sequences in turn; 512 threads; shared
// memory: MergeShared and, in the tuned form, the keys. The other form is for dimensions that are
// not kDim and for slots that do not fit; it has one block a head.
template <int kDim, bool kTuned, int kTokens>
__global__ void __launch_bounds__(kMergeThreads, 1)
    OvqMergeKernel(const __grid_constant__ OvqKernelArgs args, int num_blocks, int num_rows) {
  extern __shared__ uint4 shared_memory[];
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");  // the reads wait for `progress`
#endif
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
    ovq::MergeArrays arrays;
    arrays.exchanged = reinterpret_cast<uint64_t*>(shared + 1);
    arrays.tokens = reinterpret_cast<uint16_t*>(arrays.exchanged +
                                                (num_blocks > 1 ? 2 * num_blocks * kTokens : 0));
    const int64_t first_slot = static_cast<int64_t>(chain) * args.capacity;
    arrays.keys = kTuned ? arrays.tokens + kTokens * kDim : args.merge_keys + first_slot * kDim;
    arrays.slot_rows = kTuned ? reinterpret_cast<int32_t*>(arrays.keys + num_rows * kDim)
                              : args.merge_rows + first_slot;
    __syncthreads();  // the chain before is done
    if (threadIdx.x == 0) {
      const int64_t row =
          (sequence.state * args.num_heads + chain % args.num_heads) * args.max_slots;
      shared->sequence = sequence;
      shared->slot_keys = args.states.keys + row * args.key_dim;
      shared->slot_values = args.states.values + row * args.value_dim;
      shared->counts = args.states.counts + row;
    }
    __syncthreads();
    ovq::MergeBlock<kDim, kTuned, kTokens> merge_block(args, sequence_index, chain % args.num_heads,
                                                       block, num_blocks, arrays, shared);
    ovq::Matcher<kDim, kTuned, kTokens> matcher(&merge_block);
    Merger<kDim, kTuned, kTokens>(&merge_block, &matcher).Run();
  }
}

// Slots that a block owns, rounded up to whole tiles.
int NumRows(int num_blocks, int64_t max_filled) {
  const int64_t tiles = (max_filled + kOwnedSlots - 1) / kOwnedSlots;
  return static_cast<int>((tiles + num_blocks - 1) / num_blocks * kOwnedSlots);
}

// Bytes of a block's shared memory with num_rows slots.
size_t SharedBytes(int dim, int tokens, int num_blocks, int num_rows) {
  const auto dims = static_cast<size_t>(dim);
  const auto exchanged = static_cast<size_t>(num_blocks > 1 ? 2 * num_blocks * tokens : 0);
  return sizeof(MergeShared) + exchanged * sizeof(uint64_t) +
         static_cast<size_t>(tokens) * dims * sizeof(uint16_t) +
         static_cast<size_t>(num_rows) * (dims * sizeof(uint16_t) + sizeof(int32_t));
}

template <int kDim, bool kTuned, int kTokens>
absl::Status Launch(Queue* queue, const OvqKernelArgs& args, int num_blocks, int num_rows,
                    size_t bytes) {
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
  cudaLaunchKernelEx(&config, kernel, args, num_blocks, num_rows);
  return queue->LaunchStatus("OvqMergeKernel");
}

size_t MostBytes(Queue* queue) {
  return queue->compute_capability() >= 90 ? size_t{227} << 10 : size_t{99} << 10;
}

// As many blocks a head as the device has room for: they cost exchanges, but share the work. Of the
// 132 multiprocessors of an H100 not all can be in clusters of 8, whose blocks are of one group of
// 16 or 18; a cluster that has to wait for another would double the time.
int NumBlocks(Queue* queue, const OvqKernelArgs& args, int dim, int64_t max_filled) {
  if (queue->compute_capability() < 90) return 1;
  const int num_chains = args.num_heads * args.num_sequences;
  int num_blocks = 1;
  while (num_blocks < kOvqMaxMergeBlocks &&
         (SharedBytes(dim, args.chunk_tokens, num_blocks, NumRows(num_blocks, max_filled)) >
              MostBytes(queue) ||
          2 * num_blocks * num_chains <= queue->num_multiprocessors() * 3 / 4)) {
    num_blocks *= 2;
  }
  return num_blocks;
}

bool IsTuned(Queue* queue, const OvqKernelArgs& args, int dim, int num_blocks, int64_t max_filled) {
  return args.key_dim == dim && args.value_dim == dim &&
         SharedBytes(dim, args.chunk_tokens, num_blocks, NumRows(num_blocks, max_filled)) <=
             MostBytes(queue);
}

template <int kDim, int kTokens>
absl::Status Launch(Queue* queue, const OvqKernelArgs& args, int64_t max_filled) {
  const int num_blocks = NumBlocks(queue, args, kDim, max_filled);
  const int num_rows = NumRows(num_blocks, max_filled);
  if (IsTuned(queue, args, kDim, num_blocks, max_filled)) {
    return Launch<kDim, true, kTokens>(queue, args, num_blocks, num_rows,
                                       SharedBytes(kDim, kTokens, num_blocks, num_rows));
  }
  return Launch<kDim, false, kTokens>(queue, args, 1, 0, SharedBytes(kDim, kTokens, 1, 0));
}

}  // namespace

int OvqMergeBlocks(Queue* queue, const OvqKernelArgs& args, int dim, int64_t max_filled) {
  const int num_blocks = NumBlocks(queue, args, dim, max_filled);
  return IsTuned(queue, args, dim, num_blocks, max_filled) ? num_blocks : 1;
}

absl::Status OvqLaunchMerge(Queue* queue, const OvqKernelArgs& args, int dim, int64_t max_filled) {
  if (args.chunk_tokens == 64) {
    return dim == 64 ? Launch<64, 64>(queue, args, max_filled)
                     : Launch<128, 64>(queue, args, max_filled);
  }
  return dim == 64 ? Launch<64, 128>(queue, args, max_filled)
                   : Launch<128, 128>(queue, args, max_filled);
}

}  // namespace lethe
