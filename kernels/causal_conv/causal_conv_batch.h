// CausalConvPacked, CausalConvBatch: CausalConv for the tokens of many sessions, on the queue's device.
//
// Equation:  as in causal_conv.h.
// Shapes:    taps: [width][C], w transposed; bias: [C] or null; z, y: [num_tokens][C] f32, packed; pool:
//            [num_slots][width-1][C], the input at rank r in row r mod (width-1). No tokens: a no-op.
// Units:     none.
// Requires:  C >= 1, width 1 … 8, at most 2^16 - 1 sequences (LETHE_CHECK); what PackedSequences
//            requires; the pool holds the min(rank, width-1) inputs before each sequence's first; y does
//            not overlap z.
// Rejects:   INTERNAL when a launch fails.
// Effects:   enqueues the work that writes y and moves the slots' states on. Rows that no token has
//            reached are neither read nor written.
// Numerics:  the bits of CausalConv on both devices; a token's bits depend on its last `width` inputs
//            alone. One token a sequence moves its state's bytes once.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_CAUSAL_CONV_CAUSAL_CONV_BATCH_H_
#define LETHE_KERNELS_CAUSAL_CONV_CAUSAL_CONV_BATCH_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/packed_sequences.h"
#include "kernels/base/queue.h"

namespace lethe {

struct CausalConvPacked {
  int64_t num_channels = 0;  // C
  int64_t width = 1;
  const float* taps = nullptr;
  const float* bias = nullptr;
};

absl::Status CausalConvBatch(Queue* queue, const CausalConvPacked& weights, const float* z,
                             const PackedSequences& sequences, float* pool, float* y);

}  // namespace lethe

#endif  // LETHE_KERNELS_CAUSAL_CONV_CAUSAL_CONV_BATCH_H_
