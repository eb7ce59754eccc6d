// VlaEvaluate: takes tokens of many sessions into Variational Linear Attention's memory and reads it,
// in the form that is canonical for each: whole chunks of 64 by VlaChunk, the rest by steps.
//
// Equation:  vla.h's.
// Shapes:    B sequences, N tokens of all of them, packed in the order of `sequences`. H heads, K
//            key_dim, V value_dim. q, k, write_direction (null for kRls): [N][H][K]; v, out:
//            [N][H][V]; f32 row-major, on the queue's device. Pools [num_slots][H][…] there: a
//            [K][K], s [V][K], key_sum [K] (null for kRms) are the state at the session's last rank;
//            where VlaChunkCovers, gram (starts lambda0 I), boundary_a (I / lambda0) [K][K] and
//            boundary_s (0) [V][K] are the one at its last rank that is a multiple of 64, else null.
//            out null: no reads, q is not used. workspace: VlaEvaluateWorkspaceBytes of it.
// Units:     a sequence's rank counts the session's tokens before its first one in the call; bytes.
// Requires:  as vla_fold.h and vla_chunk.h. A sequence's rank is the session's number of tokens or,
//            where VlaChunkCovers, its last multiple of 64: then the tokens from there on are taken
//            again, (a, s) starting anew from the boundary. Without a chunk form a session at rank 0
//            starts from what a, s and key_sum hold (VlaInitialState).
// Rejects:   INVALID_ARGUMENT: a negative rank or count, 2^31 tokens, a slot that comes twice, a
//            workspace too small; a sequence that starts inside a chunk and reaches its end: a chunk
//            is one evaluation, so whoever ends it brings all of it. The kernels' own errors.
// Effects:   updates the pools at the sequences' slots, overwrites out and the workspace, which then
//            holds what the session's tokens left there: wipe it with them. A sequence of no tokens
//            changes nothing. No array may overlap another, inputs excepted. A call that has both
//            forms copies its inputs and reads by way of the workspace.
// Numerics:  the states' bits are a function of the session's tokens: not of their cut into calls,
//            the batch or the slot. A read has the chunk's bits where the call holds the token's
//            whole chunk, else the step's; so the last reads of all tokens, too, are the same for
//            any cut. Without a chunk form every rank is a step's. Cost as VlaChunk's and VlaFold's.
// Threads:   the queue's; does not wait for the work, but brings the sequences' places to the device.
#ifndef LETHE_KERNELS_VLA_VLA_EVALUATE_H_
#define LETHE_KERNELS_VLA_VLA_EVALUATE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

#include "kernels/base/queue.h"
#include "kernels/vla/vla.h"

namespace lethe {

// A session's share of a call, on the host.
struct VlaSequence {
  int32_t slot = 0;
  int64_t rank = 0;
  int64_t count = 0;
};

struct VlaEvaluation {
  absl::Span<const VlaSequence> sequences;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const float* write_direction = nullptr;
  float* gram = nullptr;
  float* boundary_a = nullptr;
  float* boundary_s = nullptr;
  float* a = nullptr;
  float* s = nullptr;
  float* key_sum = nullptr;
  float* out = nullptr;
};

int64_t VlaEvaluateWorkspaceBytes(const VlaOptions& options,
                                  absl::Span<const VlaSequence> sequences);

absl::Status VlaEvaluate(Queue* queue, const VlaOptions& options, const VlaEvaluation& evaluation,
                         void* workspace, int64_t workspace_bytes);

}  // namespace lethe

#endif  // LETHE_KERNELS_VLA_VLA_EVALUATE_H_
