// OvqBatchCuda: the CUDA form of OvqBatch, and what its kernels share; internal to kernels/ovq.
//
// Shapes:   D is key_dim and value_dim rounded up to 64 or 128: rows of the workspace are [D], zero
//           beyond the dimensions. A unit is kOvqUnitElements / D slots, a half unit half of them.
//           A segment is a number of chunks that one round of kernels treats; C chunks at most.
//             dictionary (slots as the reads see them, at the start of a segment): [S][H][capacity]
//             log (slots that a chunk's merge changed, at the place of one of its tokens):
//               [S][H][C][L], slot -1 where a token changed none
//             partials: [S][H][C][units][L / 16] tiles of 16 tokens, in the registers' order
//           Rows of halves stand in the order of PermutedHalf (ovq_cuda.cuh).
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

inline constexpr int kOvqUnitElements = 16384;
inline constexpr int kOvqMaxSegmentChunks = 128;
inline constexpr int kOvqTileTokens = 16;  // rows of the matrix unit's tile

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

  int capacity;  // slots of the dictionary, a multiple of a unit's
  int num_units;
  int first_chunk;  // of the segment, counted from the chunk at the call's start
  int segment_chunks;
  uint16_t* dictionary_keys;  // halves
  float* dictionary_values;
  float* dictionary_biases;
  uint16_t* merge_keys;  // halves of the slots' keys for a head whose block cannot hold them
  int32_t* log_slots;
  uint16_t* log_keys;
  float* log_values;
  float* log_biases;
  float* partials;
  float* partial_stats;  // (largest logit, sum of weights) per token
};

size_t OvqWorkspaceBytesCuda(const OvqShape& shape, const OvqBatchSize& size);

absl::Status OvqBatchCuda(Queue* queue, const OvqShape& shape, const OvqBatchSize& size,
                          const OvqInputs& inputs, const OvqStates& states, float* out,
                          int32_t* assignments, const OvqWorkspace& workspace);

// The rounds of kernels. `dim` is D; each launches nothing where there is nothing to do.
absl::Status OvqLaunchMerge(Queue* queue, const OvqKernelArgs& args, int dim, int64_t max_filled);
absl::Status OvqLaunchDictionary(Queue* queue, const OvqKernelArgs& args, int dim);
absl::Status OvqLaunchRead(Queue* queue, const OvqKernelArgs& args, int dim);
absl::Status OvqLaunchChunk(Queue* queue, const OvqKernelArgs& args, int dim);
absl::Status OvqLaunchStep(Queue* queue, const OvqKernelArgs& args, int dim, int64_t max_filled);
absl::Status OvqLaunchAppend(Queue* queue, const OvqKernelArgs& args);

}  // namespace lethe

#endif  // LETHE_KERNELS_OVQ_OVQ_CUDA_H_
