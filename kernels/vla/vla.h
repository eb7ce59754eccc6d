// VlaRecurrent: folds tokens into Variational Linear Attention's memory and reads it, one token
// after the other.
//
// Equation:  for the token of rank t (Pandey and Singh 2026, the v3 code; papers.md 3.1): z = A u;
//            A <- A - z z^T / max(1 + u^T z, 1e-4);  nudge: if (t+1) mod 20 = 0, A <- A + 1e-3 I;
//            k^ = l2(k);  a = l2(A k^);  S <- S + (v - S k^) a^T; kPaper: z_k <- z_k + k, o = S q /
//            max(z_k^T q, 1e-4);   kRms: o = S q / sqrt(mean((S q)^2) + 1e-12). l2(x) = x /
//            sqrt(sum x^2 + 1e-12). Variant kRls (recursive least squares): u = k^ and a = A k^ as
//            it is. We differ from the paper in kRms, because kPaper's reads fade like 1/t
//            (numerics.md 18). The learned read_gain of kRms is the caller's.
// Shapes:    H heads, K key_dim, V value_dim. q, k (both already elu + 1), write_direction (u,
//            already l2 / sqrt(K); empty for kRls): [count][H][K]; v: [count][H][V]; a: [H][K][K],
//            starts I / lambda0; s: [H][V][K], starts 0; key_sum (z_k): [H][K], starts 0, empty for
//            kRms; out: [count][H][V]. f32 row-major.
// Units:     step_count counts the tokens before the first one of this call, from the session's
//            rank 0.
// Requires:  K and V multiples of 8; spans of exactly these sizes, count >= 0, step_count >= 0
//            (LETHE_CHECK). a symmetric.
// Rejects:   none.
// Effects:   updates the state in place, overwrites out. No span may overlap another, inputs
//            excepted.
// Numerics:  f32; the mean of (S q)^2 in f64. A stays symmetric bit for bit: both factors of z z^T
//            are z / sqrt(denominator). A u and A k^ are one fma chain per element over ascending
//            index, S k^ and S q sum in 8 lanes and one fixed tree. Bits are a function of the
//            token sequence, not of its cut into calls. Values beyond f32 become infinite or NaN in
//            S and in every later read. Cost O(H K (K + V)) per token.
// Threads:   safe for distinct states.
#ifndef LETHE_KERNELS_VLA_VLA_H_
#define LETHE_KERNELS_VLA_VLA_H_

#include <cstdint>

#include "absl/types/span.h"

namespace lethe {

enum class VlaVariant { kVla, kRls };
enum class VlaReadNorm { kRms, kPaper };

inline constexpr int64_t kVlaNudgePeriod = 20;
inline constexpr double kVlaNudge = 1e-3;
inline constexpr double kVlaDenominatorMin = 1e-4;
inline constexpr double kVlaReadEpsilon = 1e-12;

struct VlaOptions {
  int64_t num_heads = 1;
  int64_t key_dim = 64;
  int64_t value_dim = 64;
  VlaVariant variant = VlaVariant::kVla;
  bool nudge = false;
  double lambda0 = 0.1;
  VlaReadNorm read_norm = VlaReadNorm::kRms;
};

struct VlaInputs {
  absl::Span<const float> q;
  absl::Span<const float> k;
  absl::Span<const float> v;
  absl::Span<const float> write_direction;
};

struct VlaState {
  absl::Span<float> a;
  absl::Span<float> s;
  absl::Span<float> key_sum;
};

// Sets a to I / lambda0 and the rest to zero: the state at rank 0.
void VlaInitialState(const VlaOptions& options, const VlaState& state);

void VlaRecurrent(const VlaOptions& options, const VlaInputs& inputs, int64_t count,
                  int64_t step_count, const VlaState& state, absl::Span<float> out);

// The same state without the reads; inputs.q is not used.
void VlaWrite(const VlaOptions& options, const VlaInputs& inputs, int64_t count, int64_t step_count,
              const VlaState& state);

}  // namespace lethe

#endif  // LETHE_KERNELS_VLA_VLA_H_
