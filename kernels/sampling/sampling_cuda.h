// SampleCuda: the CUDA form of SampleBatch; internal to kernels/sampling.
//
// Equation:  as in sampling.h.
// Shapes:    as in sampling_batch.h; workspace: a row has `sort_size` keys, then as many ids; none where
//            sort_size is 0.
// Units:     none.
// Requires:  what SampleBatch checks.
// Rejects:   INTERNAL when the launch fails.
// Effects:   as SampleBatch.
// Numerics:  as SampleBatch.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_SAMPLING_SAMPLING_CUDA_H_
#define LETHE_KERNELS_SAMPLING_SAMPLING_CUDA_H_

#include "kernels/sampling/sampling_batch.h"

namespace lethe::sampling {

// What is sorted in shared memory; larger vocabularies are sorted in the workspace.
inline constexpr int64_t kSortTile = 4096;

struct CudaProblem {
  const float* logits;
  int64_t num_rows;
  int vocab;
  int sort_size;  // a power of two
  const SamplingRow* rows;
  const int32_t* counts;
  uint64_t* keys;  // [num_rows][sort_size]
  uint32_t* ids;   // [num_rows][sort_size]
  SampledRow* sampled;
  TokenLogprob* top;
};

absl::Status SampleCuda(Queue* queue, const CudaProblem& problem);

}  // namespace lethe::sampling

#endif  // LETHE_KERNELS_SAMPLING_SAMPLING_CUDA_H_
