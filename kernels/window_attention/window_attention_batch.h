// WindowAttentionPool, WindowAttentionBatch: WindowAttention for the tokens of many sessions, on the
// queue's device.
//
// Equation:  as in window_attention.h.
// Shapes:    q, k: [num_tokens][H][K], v, o: [num_tokens][H][V] f32, packed; slopes: [H]; pool.keys:
//            [num_slots][H][window-1][K], pool.values: [num_slots][H][window-1][V], the row of the
//            token at rank r at place r mod (window-1). K and V multiples of 8, arrays aligned to 16
//            bytes. No tokens: a no-op. window 1: no pool.
// Units:     slope per token of distance.
// Requires:  shape as stated, window at most 2^14, at most 2^16 - 1 sequences (LETHE_CHECK); what PackedSequences requires;
//            the pool holds the min(rank, window-1) tokens before each sequence's first; finite inputs;
//            o does not overlap the inputs.
// Rejects:   INTERNAL when a launch fails.
// Effects:   enqueues the work that writes o and moves the slots' states on. Places that no token has
//            reached are neither read nor written.
// Numerics:  the bits of WindowAttention on both devices: every reduction over the window goes by
//            distance from the query, a query's bits depend on its window alone, not on batch, cut into
//            calls or place in the ring. Cost O(num_tokens H window (K + V)); one token a sequence
//            reads its window once.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_WINDOW_ATTENTION_WINDOW_ATTENTION_BATCH_H_
#define LETHE_KERNELS_WINDOW_ATTENTION_WINDOW_ATTENTION_BATCH_H_

#include "absl/status/status.h"

#include "kernels/base/packed_sequences.h"
#include "kernels/base/queue.h"
#include "kernels/window_attention/window_attention.h"

namespace lethe {

struct WindowAttentionPool {
  float* keys = nullptr;
  float* values = nullptr;
};

absl::Status WindowAttentionBatch(Queue* queue, const WindowAttentionShape& shape,
                                  const float* slopes, const float* q, const float* k,
                                  const float* v, const PackedSequences& sequences,
                                  const WindowAttentionPool& pool, float* o);

}  // namespace lethe

#endif  // LETHE_KERNELS_WINDOW_ATTENTION_WINDOW_ATTENTION_BATCH_H_
