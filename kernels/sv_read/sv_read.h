// SvRead: one read of a support-vector attention head, the softmax over its gated support and the tokens
// since the last boundary.
//
// Equation:  l_i = scale q.k_i; m = max l over the distinct support keys and the local keys; w_i =
//            exp(l_i - m), times gate_i for a support row, whose key is distinct key key_of[i]; o =
//            sum w_i v_i / sum w_i, the support before the local rows (docs/model-format.md 2, kind sv).
// Shapes:    q: [K], o: [V]; spans of SvReadRows as stated there. All may be empty but local_keys.
// Units:     scale: beta sqrt(K), on a dot product.
// Requires:  sizes as stated (LETHE_CHECK), key_of within the distinct keys, gates at least 0, finite
//            inputs; o does not overlap the inputs.
// Rejects:   none; a sum that overflows gives a result that is not finite.
// Effects:   writes o and the workspace, which then holds numbers computed from the session's content.
// Numerics:  f32. l_i by Dot of kernels/math, the weights' sum by its Sum (lane = row mod 8), o as one
//            fma chain over the rows per column, divided by that sum. SvReadRef: double.
// Threads:   safe; a workspace belongs to one thread.
#ifndef LETHE_KERNELS_SV_READ_SV_READ_H_
#define LETHE_KERNELS_SV_READ_SV_READ_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lethe {

// The gated rows of a head in rank order; equal keys lie there once.
struct SvSupport {
  absl::Span<const float> keys;      // [D][K], distinct
  absl::Span<const int32_t> key_of;  // [S], the row's place in keys
  absl::Span<const float> gates;     // [S]
  absl::Span<const float> values;    // [S][V]
};

struct SvReadRows {
  SvSupport support;
  absl::Span<const float> local_keys;    // [L][K], the reading token's last
  absl::Span<const float> local_values;  // [L][V]
};

struct SvReadWorkspace {
  std::vector<float> logits;
  std::vector<float> weights;
};

void SvRead(float scale, absl::Span<const float> q, const SvReadRows& rows,
            SvReadWorkspace* workspace, absl::Span<float> o);

// The oracle.
void SvReadRef(float scale, absl::Span<const float> q, const SvReadRows& rows,
               absl::Span<double> o);

}  // namespace lethe

#endif  // LETHE_KERNELS_SV_READ_SV_READ_H_
