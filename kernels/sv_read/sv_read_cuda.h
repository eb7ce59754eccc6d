// SvReadCuda: the CUDA form of SvReadBatch; internal to kernels/sv_read.
//
// Equation:  as in sv_read.h.
// Shapes:    as in sv_read_batch.h.
// Units:     none.
// Requires:  what SvReadBatch checks.
// Rejects:   INTERNAL when a launch fails.
// Effects:   as SvReadBatch.
// Numerics:  the bits of SvRead.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_SV_READ_SV_READ_CUDA_H_
#define LETHE_KERNELS_SV_READ_SV_READ_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/queue.h"
#include "kernels/sv_read/sv_read_batch.h"

namespace lethe::sv_read {

struct CudaProblem {
  const float* scales;
  const float* q;
  const float* k;
  const float* v;
  PackedSequences sequences;
  const SvReadHead* heads;
  float* o;
  int num_heads;
  int key_dim;
  int value_dim;
  int room;  // keys whose logits have a place in shared memory; SvReadCuda sets it
};

absl::Status SvReadCuda(Queue* queue, const CudaProblem& problem, int64_t most_distinct);

}  // namespace lethe::sv_read

#endif  // LETHE_KERNELS_SV_READ_SV_READ_CUDA_H_
