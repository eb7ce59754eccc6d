// VlaFold: folds tokens into Variational Linear Attention's memories of many sessions at once and
// reads them, each session one token after the other; decode is the case of one token a session.
//
// Equation:  as vla.h. On CUDA A k^ after the update is taken from products with A before it: with
//            z = A u, y = A k^, c = max(1 + u.z, 1e-4) it is y - z (u.y) / c, plus 1e-3 k^ at a
//            nudge; kRls: z / c where 1 + u.z is c.
// Shapes:    B sequences, N tokens of all of them, packed: sequence b has tokens offsets[b] ..
//            offsets[b+1]. H heads, K key_dim, V value_dim. q, k, write_direction (null for kRls):
//            [N][H][K]; v, out: [N][H][V]; pools of states: a [slots][H][K][K], s [slots][H][V][K],
//            key_sum [slots][H][K] (null for kRms). slots, step_counts: [B], offsets: [B+1]. All
//            pointers are of the queue's device, offsets too. out null: the states alone advance, q
//            is not used (VlaWrite). f32 row-major.
// Units:     step_counts[b] counts the tokens of the session before this call: the rank of its
//            first token here.
// Requires:  K and V multiples of 8, on CUDA at most 128; offsets ascend from 0 to num_tokens, none
//            of the sequences is longer than max_length; slots differ from each other; pointers are
//            aligned to 16 bytes; a symmetric (LETHE_CHECK of what the host can see).
// Rejects:   UNIMPLEMENTED: K or V above 128 on CUDA. INTERNAL: the launch failed; K or V above 64
//            needs up to 135 KB of shared memory a block (compute capability 8.0, 8.7, 9.0 and up).
// Effects:   updates the sequences' states in place, overwrites out; enqueued, not waited for. A
//            sequence of no tokens changes nothing. No array may overlap another, inputs excepted.
// Numerics:  CPU: vla.h. CUDA: f32, fixed orders; sums run over a lane's elements by ascending
//            index, then over lanes and warps in one tree; 1 / sqrt(x) is rsqrt.approx and one
//            Newton step, so that the device kind is part of the bits. The mean of (S q)^2 is in
//            f32: reads beyond 1e19 become NaN. A stays symmetric bit for bit. Bits of a sequence
//            are a function of its state and tokens: not of the batch, the slot or the cut into
//            calls, so that steps and prefill are one form and every rank is canonical; a block owns a
//            state, and its sums have one order anyway (no form without it was measured). Tolerance
//            against VlaRef: 1e-5 of the largest element (vla_fold_test.cc). Cost O(H K (K + V)) a
//            token, one block a sequence and head; decode takes 4 to 6 % longer where slots do not
//            ascend.
// Threads:   the queue's.
#ifndef LETHE_KERNELS_VLA_VLA_FOLD_H_
#define LETHE_KERNELS_VLA_VLA_FOLD_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/queue.h"
#include "kernels/vla/vla.h"

namespace lethe {

struct VlaBatch {
  int64_t num_sequences = 0;
  int64_t num_tokens = 0;
  int64_t max_length = 0;  // of one sequence
  const int32_t* offsets = nullptr;
  const int32_t* slots = nullptr;
  const int64_t* step_counts = nullptr;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const float* write_direction = nullptr;
  float* a = nullptr;
  float* s = nullptr;
  float* key_sum = nullptr;
  float* out = nullptr;
};

absl::Status VlaFold(Queue* queue, const VlaOptions& options, const VlaBatch& batch);

}  // namespace lethe

#endif  // LETHE_KERNELS_VLA_VLA_FOLD_H_
