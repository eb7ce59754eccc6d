// PalimpsaFold: folds the tokens of many sessions into their states in one call, and reads them; on
// the device of its queue.
//
// Equation:  palimpsa.h's, for every sequence on its own.
// Shapes:    H heads, K key_dim, V value_dim. The tokens of all sequences stand behind each other:
//            q, k: [num_tokens][H][K]; value (v~), precision (b), out: [num_tokens][H][V];
//            log_decay: [num_tokens][H]; f32 row-major. Sequence s has tokens offsets[s] to
//            offsets[s + 1] - 1 and the state at slots[s] of the pools m, i_bar: [slot][H][V][K].
//            Null precision and i_bar: b = 0, which is Mamba2 (SimpleGLA). Null q and out: no reads.
// Units:     log_decay natural log, <= 0.
// Requires:  all pointers, offsets and slots too, in memory of the queue's device, the f32 ones
//            aligned to 16 bytes. offsets ascend from 0 to num_tokens; no sequence is longer than
//            max_length; slots are distinct. On CUDA nobody checks what stands in offsets and slots.
// Rejects:   INVALID_ARGUMENT: K or V not a multiple of 8 from 8 to 128, negative counts, a pointer
//            missing, misaligned or present without its mate. INTERNAL: the device's errors.
// Effects:   updates m and i_bar at the given slots in place, overwrites out; a sequence of no tokens
//            changes nothing. No array may overlap another, inputs excepted.
// Numerics:  f32. The canonical form is the fold of steps, for every rank: each state element is
//            fma(v~, k, decay * M) per token, so state and reads have the same bits however the
//            tokens were cut into calls, whatever other sequences are in the call, wherever they
//            stand in it. CPU: palimpsa.h's bits. CUDA: decay is math.h's Exp, to the bit, so M and
//            I have the CPU's bits too; the reads have their own: M times the device's approximate
//            reciprocal of I + 1 (rcp.approx, 1 ulp), two neighbouring columns in one fma chain,
//            then pair p of columns (K padded with zeros to 64 or 128) joined with pair p ^ 1, that
//            with p ^ 2, and so on. A state or read beyond f32 becomes infinite or NaN and stays so.
//            Cost O(H V K) a token; sequences of a few tokens are bound by their states' bytes, and
//            take 3 to 5 % longer where the call's slots do not ascend.
// Threads:   as Queue. On CUDA the work is enqueued and the call returns.
#ifndef LETHE_KERNELS_PALIMPSA_PALIMPSA_BATCH_H_
#define LETHE_KERNELS_PALIMPSA_PALIMPSA_BATCH_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/queue.h"
#include "kernels/palimpsa/palimpsa.h"

namespace lethe {

struct PalimpsaBatch {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* value = nullptr;
  const float* log_decay = nullptr;
  const float* precision = nullptr;

  const int32_t* offsets = nullptr;  // [num_sequences + 1]
  const int32_t* slots = nullptr;    // [num_sequences]
  int64_t num_sequences = 0;
  int64_t num_tokens = 0;  // of all sequences
  int64_t max_length = 0;  // of one sequence, or more; it chooses kernels, never bits

  float* m = nullptr;
  float* i_bar = nullptr;
  float* out = nullptr;
};

absl::Status PalimpsaFold(Queue* queue, const PalimpsaShape& shape, const PalimpsaBatch& batch,
                          float read_scale);

}  // namespace lethe

#endif  // LETHE_KERNELS_PALIMPSA_PALIMPSA_BATCH_H_
