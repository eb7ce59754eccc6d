// VlaChunkCuda: VlaChunk's kernels in order on the queue's stream, in segments of as many chunks as
// the workspace holds. Arguments as there, already validated.
//
// The stages of a segment; c counts its chunks, h heads, D = K = V, P = kPacked of D:
//   gram   work.gram[c][h] = U^T U, lower blocks of 16 x 16 packed                     (all at once)
//   prefix work.gram[c][h] = M at the chunk's beginning; the pool's gram goes on     (fold over c)
//   invert work.gram[c][h] = L^-1 of it                                                (all at once)
//   keys   what takes S over the chunk, S' = S - S (T K^)^T alpha + (T V)^T alpha, and what reads it,
//          out = (Q - P T K^) S^T + P T V with P = lt(Q alpha^T): all but S is known    (all at once);
//          kVla on 9.0 by warpgroups (vla_chunk_keys_cuda_sm90.cu), else by warps
//   fold   the pool's S chunk by chunk; S at each beginning is kept for the reads      (fold over c)
//   read   out                                                                         (all at once)
// Threads: as VlaChunk.
#ifndef LETHE_KERNELS_VLA_VLA_CHUNK_CUDA_H_
#define LETHE_KERNELS_VLA_VLA_CHUNK_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/vla/vla_chunk.h"

namespace lethe {

// The arrays of a segment, each [chunks][H][…]. Matrices of f16 are cut into 16 x 16 blocks, 512 bytes
// each in the order of the registers that use them: 16 bytes a lane. Scales are powers of 2.
struct VlaChunkWork {
  float* gram;            // [P]; as L^-1 in f16 or split f16, TileBlocks
  uint16_t* transitions;  // [D / 16 keys to][D / 16 keys from]: ((T K^)^T alpha)^T
  uint16_t* gains;        // [D / 16 keys][D / 16 values]: ((T V)^T alpha)^T
  uint16_t* queries;      // [64 / 16][D / 16 keys]: Q - P T K^
  uint16_t* reads;        // [64 / 16][D / 16 values]: P T V
  uint16_t* states;       // [D / 8 values][D / 16 keys]: S^T at the chunk's beginning
  float*
      gain_scales;  // [D / 16 keys][D / 16 values][2]: of the transitions and of each gain's block
  float* query_scales;  // [64]: by what a token's queries and reads are multiplied
  float* read_scales;   // [64 / 16][D / 16 values]: of each block
  float* state_scales;  // [D / 8 values][D / 16 keys]: of each block
};

// One segment of the call.
struct VlaChunkSegment {
  VlaOptions options;
  VlaChunkBatch batch;
  VlaChunkWork work;
  int64_t chunk_begin;
  int64_t num_chunks;
};

// Lower blocks of 16 x 16 of a symmetric or triangular D x D matrix.
inline constexpr int64_t VlaChunkPacked(int64_t dim) { return dim / 16 * (dim / 16 + 1) / 2 * 256; }

// Bytes per chunk and head.
inline constexpr int64_t VlaChunkBytes(int64_t dim) {
  return 4 * VlaChunkPacked(dim) + 2 * (3 * dim * dim + 2 * kVlaChunkTokens * dim) +
         16 * (dim / 16) * (dim / 16) + 4 * kVlaChunkTokens +
         4 * (kVlaChunkTokens / 16) * (dim / 16);
}

absl::Status VlaChunkCuda(Queue* queue, const VlaOptions& options, const VlaChunkBatch& batch,
                          void* workspace, int64_t workspace_bytes);

// The stages, for VlaChunkCuda and the benchmarks.
absl::Status VlaChunkGram(Queue* queue, const VlaChunkSegment& segment);
absl::Status VlaChunkPrefix(Queue* queue, const VlaChunkSegment& segment);
absl::Status VlaChunkInvert(Queue* queue, const VlaChunkSegment& segment);
absl::Status VlaChunkKeys(Queue* queue, const VlaChunkSegment& segment);
absl::Status VlaChunkFold(Queue* queue, const VlaChunkSegment& segment);
absl::Status VlaChunkRead(Queue* queue, const VlaChunkSegment& segment);

// The pool's a = gram^-1 of the batch's slots.
absl::Status VlaChunkInverse(Queue* queue, const VlaOptions& options, const VlaChunkBatch& batch);

// The power of 2 that L^-1 is stored times: its elements, at most 1 / sqrt(lambda0), then lie below 2^10
// and their split f16 numbers well above its absolute resolution.
float VlaChunkInverseUnit(double lambda0);

// Cuts the workspace for a segment of num_chunks.
VlaChunkWork VlaChunkCut(const VlaOptions& options, void* workspace, int64_t num_chunks);

}  // namespace lethe

#endif  // LETHE_KERNELS_VLA_VLA_CHUNK_CUDA_H_
