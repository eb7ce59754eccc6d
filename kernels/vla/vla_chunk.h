// VlaChunk: folds whole chunks of 64 tokens into Variational Linear Attention's memory and reads
// it, for many sessions in one call; a chunk is a few matrix products, not 64 steps.
//
// Equation:  vla.h's without the nudge, chunk by chunk from a boundary state (M, S), M = A^-1 =
//            lambda0 I + sum u u^T. With the chunk's rows U, K^ = l2(K), V, Q, M = L L^T and the
//            lower triangles lt (with) and slt (without the diagonal):
//              Y_u = U L^-T, Y_k = K^ L^-T, G = I + Y_u Y_u^T = N^-1 N^-T, F = N Y_u,
//              alpha = rows of (Y_k - lt(Y_k F^T) F) L^-1, which are A_t k^_t (Woodbury; the
//              leading blocks of N give every prefix t), for kVla each scaled to length 1;
//              T = (I + slt(K^ alpha^T))^-1, E = T V - (T K^) S^T,
//              out = Q S^T + lt(Q alpha^T) E, then the read norm;
//              M' = M + U^T U, S' = S + E^T alpha.
// Shapes:    H heads, K = V. q, k, write_direction (empty for kRls): [num_tokens][H][K]; v, out:
//            [num_tokens][H][V]; sequence i has the tokens offsets[i] … offsets[i + 1] - 1, whole
//            chunks of 64, and the state of slot slots[i]; pools gram (M, starts lambda0 I), a:
//            [num_slots][H][K][K]; s (starts 0): [num_slots][H][V][K]. f32 row-major, int32. out
//            null: no reads, q is not used. All on the queue's device. workspace: any size of at
//            least VlaChunkWorkspaceBytes of one chunk; less than the whole call's costs launches.
// Units:     bytes.
// Requires:  the first token's rank is a multiple of 64; offsets[0] = 0, ascending multiples of 64;
//            slots differ. gram symmetric.
// Rejects:   INVALID_ARGUMENT: options that VlaChunkCovers refuses, num_tokens no multiple of 64, a
//            workspace too small for one chunk.
// Effects:   updates gram and s, overwrites a with M^-1 (for the steps of the tail: vla.h), out and
//            the workspace, which then holds what the session's tokens left there: wipe it with
//            them. No array may overlap another.
// Numerics:  canonical for states at ranks that are multiples of 64; ranks between are folded by
//            steps from (a, s). A sequence's bits are a function of its own chunks: not of their cut
//            into calls, the other sequences, the slot or the workspace's size. On the CPU f64 inside,
//            states in f32. On CUDA M and its inverse in split f16 (22 bits of the matrix's largest, sums
//            in f32); alpha for kRls likewise, for kVla, whose alpha is scaled to length 1, in one term of
//            f16 (11 bits), as is everything that is made of alpha, Q and V. What a chunk does to S and
//            to a read of it is kept as f16 with powers of 2 for blocks and rows; S is summed in f32.
//            Against the double reference on an H200: reads 1.8e-3 (kRls 1.1e-3), S 1.5e-3 (6e-4) for
//            random keys at T 4096 and 32768, D 64 and 128; reads 4e-3 (1e-3), S 7e-3 (1e-3) where keys
//            differ by a tenth. S has the error of M's least determined directions on top, in any f32
//            form (5e-2 and 6e-3 where keys differ by a hundredth, T 32768). No pivot can fall under
//            lambda0 (M) or 1 (G), nor does any after rounding. write_direction's rows: length at most
//            1; above 2^6, values that leave f32 and T K^ above f16 show as infinity or NaN. Cost
//            O(H K (K + 64)) per token.
// Threads:   one call at a time per queue; does not wait.
#ifndef LETHE_KERNELS_VLA_VLA_CHUNK_H_
#define LETHE_KERNELS_VLA_VLA_CHUNK_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/base/queue.h"
#include "kernels/vla/vla.h"

namespace lethe {

inline constexpr int64_t kVlaChunkTokens = 64;

struct VlaChunkBatch {
  int64_t num_sequences = 0;
  int64_t num_tokens = 0;  // offsets[num_sequences]
  const int32_t* offsets = nullptr;
  const int32_t* slots = nullptr;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const float* write_direction = nullptr;
  float* gram = nullptr;
  float* s = nullptr;
  float* a = nullptr;
  float* out = nullptr;
};

// Whether sessions of these options have a chunk form: no nudge, kRms, K = V = 64 or 128. All others
// are folded by steps alone.
bool VlaChunkCovers(const VlaOptions& options);

// What a call of so many tokens uses at most; 0 for options that VlaChunkCovers refuses.
int64_t VlaChunkWorkspaceBytes(const VlaOptions& options, int64_t num_tokens);

absl::Status VlaChunk(Queue* queue, const VlaOptions& options, const VlaChunkBatch& batch,
                      void* workspace, int64_t workspace_bytes);

}  // namespace lethe

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_H_
