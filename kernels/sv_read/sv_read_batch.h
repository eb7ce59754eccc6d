// SvReadHead, SvReadBatch: SvRead for the tokens of many sessions, on the queue's device.
//
// Equation:  as in sv_read.h; the local rows of a token are its session's since the last rank that is a
//            multiple of 64, its own included.
// Shapes:    q, k: [num_tokens][H][K], v, o: [num_tokens][H][V] f32, packed; scales: [H]; heads:
//            [num_slots][H]. K and V are multiples of 8. No tokens: a no-op.
// Units:     scales: beta sqrt(K).
// Requires:  at most 2^16 - 1 sequences (LETHE_CHECK); what PackedSequences requires; no sequence goes
//            past the next multiple of 64; q, k, v, o, heads, what the heads point to and scales on the
//            queue's device, arrays and every pointer of a head aligned to 16 bytes, key_of and gates
//            readable up to a multiple of 4 rows; each head holds the support of the boundary and the
//            tail's tokens behind it; else as SvRead. most_distinct: about the largest num_distinct,
//            launch geometry, never bits: distinct keys beyond it cost time.
// Rejects:   INTERNAL when a launch fails.
// Effects:   enqueues the work that appends the tokens' keys and values to the tails and writes o. A
//            tail's places that no token has reached are neither read nor written. Nothing of the launch
//            depends on what the arrays hold but sequences.longest and most_distinct, so a captured one
//            can be replayed.
// Numerics:  the bits of SvRead on both devices: a token's depend on its session's rows alone, not on
//            batch, cut into calls or slot. Cost O((D + L) K + (S + L) V) a token and head; a CUDA block
//            takes 64 columns of one token, or of 8 where a call has more than one of a session.
// Threads:   compatible; the queue's owner.
#ifndef LETHE_KERNELS_SV_READ_SV_READ_BATCH_H_
#define LETHE_KERNELS_SV_READ_SV_READ_BATCH_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/packed_sequences.h"
#include "kernels/base/queue.h"
#include "kernels/sv_read/sv_read.h"

namespace lethe {

inline constexpr int64_t kSvTailTokens = 64;  // between two boundaries

struct SvReadShape {
  int64_t num_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
};

// What one head of one session reads; pointers into the device's memory.
struct SvReadHead {
  const float* support_keys = nullptr;      // [num_distinct][K]
  const int32_t* support_key_of = nullptr;  // [num_support]
  const float* support_gates = nullptr;     // [num_support]
  const float* support_values = nullptr;    // [num_support][V]
  float* tail_keys = nullptr;               // [kSvTailTokens][K]
  float* tail_values = nullptr;             // [kSvTailTokens][V]
  int32_t num_distinct = 0;
  int32_t num_support = 0;
};

absl::Status SvReadBatch(Queue* queue, const SvReadShape& shape, const float* scales,
                         const float* q, const float* k, const float* v,
                         const PackedSequences& sequences, const SvReadHead* heads,
                         int64_t most_distinct, float* o);

}  // namespace lethe

#endif  // LETHE_KERNELS_SV_READ_SV_READ_BATCH_H_
