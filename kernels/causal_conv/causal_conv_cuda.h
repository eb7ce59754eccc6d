// CausalConvCuda: the CUDA form of CausalConvBatch; internal to kernels/causal_conv.
//
// Equation:  as in causal_conv.h.
// Shapes:    as in causal_conv_batch.h.
// Units:     none.
// Requires:  what CausalConvBatch checks.
// Rejects:   INTERNAL when a launch fails.
// Effects:   as CausalConvBatch.
// Numerics:  as CausalConvBatch.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_CAUSAL_CONV_CAUSAL_CONV_CUDA_H_
#define LETHE_KERNELS_CAUSAL_CONV_CAUSAL_CONV_CUDA_H_

#include "kernels/causal_conv/causal_conv_batch.h"

namespace lethe::causal_conv {

struct CudaProblem {
  const float* taps;
  const float* bias;
  const float* z;
  PackedSequences sequences;
  float* pool;
  float* y;
  int num_channels;
  int width;
};

absl::Status CausalConvCuda(Queue* queue, const CudaProblem& problem);

}  // namespace lethe::causal_conv

#endif  // LETHE_KERNELS_CAUSAL_CONV_CAUSAL_CONV_CUDA_H_
