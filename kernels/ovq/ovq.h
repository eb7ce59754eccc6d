// OvqNumSlots, OvqRead, OvqMerge: one head of Online Vector Quantised attention: growth law, read,
// end of a chunk.
//
// Equation:  Alonso, Figliolia and Millidge 2026, "Online Vector Quantized Attention", with the tie
//            rules of numerics.md 19. Slots (D_k, D_v, c), chunk tokens (k^, v). OvqRead, token i
//            of the chunk: logits over the filled slots logit_scale q^ D_k[n] + log c_n and over
//            the chunk's tokens 0..i logit_scale q^ k^_j; o = softmax-weighted mean of D_v and v.
//            OvqMerge, after L tokens with t tokens before them: n_new = OvqNumSlots(t + L) -
//            OvqNumSlots(t). First chunk: token 0 opens slot 0; of the others the n_new - 1 least
//            similar to k^_0 open slots 1.. ; every other token joins its most similar new slot.
//            Later: best_i = max over old slots of k^_i D_k[n]; the n_new smallest best open new
//            slots; every other token joins its best old slot. Seeds: smallest (similarity, rank),
//            slots in rank order; joins: lowest slot on ties. A slot becomes the running mean (c D
//            + sum) / (c + count), summed in rank order.
// Shapes:    K key_dim, V value_dim, L chunk_tokens, n filled slots. keys: [n][K]; values: [n][V]; counts,
//            log_counts: [n]; chunk_keys: [L][K]; chunk_values: [L][V], of which the first `size`
//            tokens are set; q: [count][K]; out: [count][V]. f32 row-major.
// Units:     log_counts natural log of counts; logit_scale = beta sqrt(K).
// Requires:  K and V multiples of 8, L one of 64; sizes as stated (LETHE_CHECK); keys and queries l2-normalised
//            (L2Normalize of kernels/math), finite.
// Rejects:   none.
// Effects:   OvqRead overwrites out. OvqMerge grows and updates the slots; assignment (empty or
//            [L]) gets for each token n if it joined slot n, ~n if it opened it.
// Numerics:  f32. Dot products sum in 8 lanes and one fixed tree; weighted sums run in one fma
//            chain per output, slots first, then chunk tokens by rank; the softmax subtracts the
//            largest logit. No value depends on the cut into calls. Cost per token O((n + L)(K +
//            V)), per merge O(L n K).
// Threads:   safe for distinct slots.
#ifndef LETHE_KERNELS_OVQ_OVQ_H_
#define LETHE_KERNELS_OVQ_OVQ_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lethe {

inline constexpr int64_t kOvqChunkTokens = 64;  // the grid of every memory: L is a multiple

struct OvqShape {
  int64_t key_dim = 64;
  int64_t value_dim = 64;
  int64_t max_slots = 512;  // N of the growth law; N - 1 slots are never exceeded
  int64_t chunk_tokens = kOvqChunkTokens;
};

// The filled slots of one head. The vectors hold exactly the filled slots.
struct OvqSlots {
  std::vector<float> keys;
  std::vector<float> values;
  std::vector<int32_t> counts;
  std::vector<float> log_counts;  // a cache of Log(counts)
};

// The tokens of the current chunk, one head.
struct OvqChunk {
  absl::Span<const float> keys;
  absl::Span<const float> values;
  int64_t size = 0;
};

// floor(N t / (N + t)): slots that are filled after t tokens, t a multiple of L.
int64_t OvqNumSlots(int64_t max_slots, int64_t num_tokens);

// Reads for the tokens first .. first + count - 1 of the chunk, which are already in it.
void OvqRead(const OvqShape& shape, float logit_scale, const OvqSlots& slots, const OvqChunk& chunk,
             int64_t first, int64_t count, absl::Span<const float> q, absl::Span<float> out);

// Merges a full chunk into the slots; num_tokens_before is t.
void OvqMerge(const OvqShape& shape, int64_t num_tokens_before, const OvqChunk& chunk,
              OvqSlots* slots, absl::Span<int32_t> assignment);

}  // namespace lethe

#endif  // LETHE_KERNELS_OVQ_OVQ_H_
