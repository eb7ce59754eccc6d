// OvqBatch: Online Vector Quantised attention for many sessions at once, on a queue's device.
//
// Equation:  as ovq.h, for every head of every sequence: each token is read against the slots at its
//            chunk's start and its chunk's tokens up to itself; a chunk that fills up is merged. A
//            sequence goes on where its state stands: at its `num_tokens_before`, of which the last
//            (num_tokens_before mod L) are in the state's pending chunk, L = shape.chunk_tokens.
// Shapes:    H heads, K key_dim, V value_dim, N max_slots, S sequences, T tokens of all of them.
//            state: keys [num_states][H][N][K], values [num_states][H][N][V], counts
//            [num_states][H][N], pending_keys [num_states][H][L][K], pending_values
//            [num_states][H][L][V]; of the slots the first OvqFilledSlots are in use. offsets: [S + 1],
//            ascending from 0 to T; states, num_tokens_before: [S]; logit_scales: [H]; q, k:
//            [T][H][K]; v, out: [T][H][V]. assignments: null, or [S][ceil(max_length / L)][H][L].
//            f32 row-major, all on the queue's device.
// Units:     logit_scales beta sqrt(K).
// Requires:  what OvqBatchStatus does not see, because it lies on the device: ascending offsets, states
//            below num_states and different from each other, keys and queries l2-normalised, values
//            finite (on CUDA, of magnitude 65504 at most), max_length and max_tokens_after no less
//            than what offsets and num_tokens_before say. workspace: OvqWorkspaceBytes(...) bytes, 256-byte aligned, used by nobody else until
//            the queue has done the call; it keeps copies of keys, values and reads of the call, so
//            its owner zeroes it when they are to be forgotten.
// Rejects:   INVALID_ARGUMENT: dimensions that are no multiples of 8 or above 128, a chunk_tokens other
//            than 64 and 128, sizes below zero, a workspace that is too small.
// Effects:   overwrites out and the states of the batch; pending rows that are not in use are zeroed
//            when a chunk is merged. assignments gets, per merged chunk of a sequence, what OvqMerge's
//            assignment gets.
// Numerics:  CPU: the bits of OvqRead and OvqMerge. CUDA: a state is the same running means, summed in
//            the same order: bits differ from the CPU's only where an assignment does. Similarities and
//            the logits' dot products multiply f16-rounded operands and sum in f32 (relative error of
//            a similarity 2^-10, of a weight logit_scale 2^-10); similarities are compared in steps of
//            2^-15. Weights and values of a read are rounded to f16 (relative error 2^-11 each, absolute
//            2^-25); exponentials are ex2.approx. The read is summed over the chunk, then over fixed
//            parts of the slots by index. No bit of out or state depends on the batch, on the cut into
//            calls or on which kernel was chosen.
//            Cost per token and head O((n + L)(K + V)), per merge O(L n K).
// Threads:   one queue's; does not wait for the device.
#ifndef LETHE_KERNELS_OVQ_OVQ_BATCH_H_
#define LETHE_KERNELS_OVQ_OVQ_BATCH_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/queue.h"
#include "kernels/ovq/ovq.h"

namespace lethe {

struct OvqStates {
  int64_t num_states = 0;
  float* keys = nullptr;
  float* values = nullptr;
  int32_t* counts = nullptr;
  float* pending_keys = nullptr;
  float* pending_values = nullptr;
};

// What the host knows of a batch; it fixes the workspace.
struct OvqBatchSize {
  int64_t num_heads = 0;
  int64_t num_sequences = 0;
  int64_t num_tokens = 0;
  int64_t max_length = 0;        // of a sequence
  int64_t max_tokens_after = 0;  // of a sequence: tokens before plus length
  int64_t segment_chunks = 0;    // at a time, on CUDA; 0: as many as 256 MiB of workspace hold
};

struct OvqInputs {
  const int32_t* offsets = nullptr;
  const int32_t* states = nullptr;
  const int64_t* num_tokens_before = nullptr;
  const float* logit_scales = nullptr;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
};

struct OvqWorkspace {
  void* data = nullptr;
  size_t bytes = 0;
};

// Slots in use after t tokens of which t mod L are pending: OvqNumSlots of the merged ones, and at
// least the first chunk's slot 0.
int64_t OvqFilledSlots(const OvqShape& shape, int64_t num_tokens);

size_t OvqWorkspaceBytes(DeviceKind kind, const OvqShape& shape, const OvqBatchSize& size);

absl::Status OvqBatch(Queue* queue, const OvqShape& shape, const OvqBatchSize& size,
                      const OvqInputs& inputs, const OvqStates& states, float* out,
                      int32_t* assignments, const OvqWorkspace& workspace);

}  // namespace lethe

#endif  // LETHE_KERNELS_OVQ_OVQ_BATCH_H_
