// OvqBatchCuda: the CUDA form of OvqBatch, and what its kernels share; internal to kernels/ovq.
//
// Shapes:   D is key_dim and value_dim rounded up to 64 or 128: rows of the workspace are [D], zero
//           beyond the dimensions. A segment is a number of chunks that one round of kernels treats;
//           C chunks at most.
//             rows (slots as the reads see them: key, value): [S][H][capacity + C L][2 D]: first the slots at the
//               segment's start, by slot; then those that each chunk's merge changed, at the place
//               of one of their tokens
//             row_index (where a slot's row is at the start of each of the segment's chunks but the
//               first, where it is the slot): [S][H][C][capacity]
//             progress (merges of the call whose rows can be read, by the block of the head's cluster
//               that changed them): [S][H][kOvqMaxMergeBlocks]
//           Keys of rows stand in the order of KeyPosition (ovq_cuda.cuh).
// Units:    biases are log2 of counts, -infinity where there is no slot.
// Requires: what OvqBatch has validated.
// Rejects:  the device's errors.
// Effects:  as ovq_batch.h.
// Numerics: as ovq_batch.h.
// Threads:  as ovq_batch.h.
#ifndef LETHE_KERNELS_OVQ_OVQ_CUDA_H_
#define LETHE_KERNELS_OVQ_OVQ_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/queue.h"
#include "kernels/ovq/ovq_batch.h"

namespace lethe {

inline constexpr int kOvqPartElements = 8192;  // of the slots' keys that one part of a read covers
inline constexpr int kOvqMaxSegmentChunks = 512;
inline constexpr int kOvqMaxMergeBlocks = 8;  // that share the merges of a head

// Everything a kernel needs, passed by value.
struct OvqKernelArgs {
  int key_dim;
  int value_dim;
  int chunk_tokens;
  int max_slots;
  int num_heads;
  int num_sequences;
  int max_merges;  // per sequence: the stride of assignments
  OvqInputs inputs;
  OvqStates states;
  float* out;
  int32_t* assignments;

  int capacity;     // slots, a multiple of a part's
  int num_parts;    // of capacity
  int first_chunk;  // of the segment, counted from the chunk at the call's start
  int segment_chunks;
  int merge_blocks;      // of a head
  bool is_overlapped;    // reads run beside the merges, on multiprocessors that these leave free
  uint16_t* merge_keys;  // halves of the slots' keys for a head whose block cannot hold them
  int32_t* merge_rows;   // where those slots' rows are
  uint16_t* rows;        // halves: a key, then a value
  float* row_biases;
  int32_t* row_index;
  int32_t* progress;
  float* parts;       // of reads of one token: [S][H][num_parts + 1][D]
  float* part_stats;  // (largest logit, sum of weights) of each
};

size_t OvqWorkspaceBytesCuda(const OvqShape& shape, const OvqBatchSize& size);

absl::Status OvqBatchCuda(Queue* queue, const OvqShape& shape, const OvqBatchSize& size,
                          const OvqInputs& inputs, const OvqStates& states, float* out,
                          int32_t* assignments, const OvqWorkspace& workspace);

// The rounds of kernels. `dim` is D; each launches nothing where there is nothing to do.
int OvqMergeBlocks(Queue* queue, const OvqKernelArgs& args, int dim, int64_t max_filled);  // a head
absl::Status OvqLaunchMerge(Queue* queue, const OvqKernelArgs& args, int dim, int64_t max_filled);
absl::Status OvqLaunchRows(Queue* queue, const OvqKernelArgs& args, int dim);
absl::Status OvqLaunchRead(Queue* queue, const OvqKernelArgs& args, int dim);
absl::Status OvqLaunchReadSm90(Queue* queue, const OvqKernelArgs& args, int dim);  // of 9.0 alone
absl::Status OvqLaunchStep(Queue* queue, const OvqKernelArgs& args, int dim, int64_t max_filled);
absl::Status OvqLaunchAppend(Queue* queue, const OvqKernelArgs& args);

}  // namespace lethe

#endif  // LETHE_KERNELS_OVQ_OVQ_CUDA_H_
