// WindowAttentionCuda: the CUDA form of WindowAttentionBatch; internal to kernels/window_attention and
// its benchmark.
//
// Equation:  as in window_attention.h.
// Shapes:    as in window_attention_batch.h.
// Units:     none.
// Requires:  what WindowAttentionBatch checks.
// Rejects:   INTERNAL when a launch fails.
// Effects:   as WindowAttentionBatch.
// Numerics:  the three forms give the same bits.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_WINDOW_ATTENTION_WINDOW_ATTENTION_CUDA_H_
#define LETHE_KERNELS_WINDOW_ATTENTION_WINDOW_ATTENTION_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/queue.h"
#include "kernels/window_attention/window_attention_batch.h"

namespace lethe::window_attention {

struct CudaProblem {
  const float* slopes;
  const float* q;
  const float* k;
  const float* v;
  PackedSequences sequences;
  WindowAttentionPool pool;
  float* o;
  int num_heads;
  int key_dim;
  int value_dim;
  int window;
  float scale;  // 1 / sqrt(K)
};

absl::Status WindowAttentionCuda(Queue* queue, const CudaProblem& problem);

// One token a sequence, the window in shared memory; false where it does not fit there.
bool FitsDecode(const CudaProblem& problem);
absl::Status DecodeCuda(Queue* queue, const CudaProblem& problem);
// Tiles of 64 queries of one head: K = V = 64, window at most 64. Reads the pool.
bool FitsTiles(const CudaProblem& problem);
absl::Status TilesCuda(Queue* queue, const CudaProblem& problem);
// Any shape, a block a query and head. Reads the pool.
absl::Status RowsCuda(Queue* queue, const CudaProblem& problem);
// Moves the pool on, after TilesCuda or RowsCuda.
absl::Status UpdateCuda(Queue* queue, const CudaProblem& problem);

}  // namespace lethe::window_attention

#endif  // LETHE_KERNELS_WINDOW_ATTENTION_WINDOW_ATTENTION_CUDA_H_
