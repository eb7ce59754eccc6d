// PalimpsaRecurrent: folds tokens into Palimpsa's associative memory and reads it, one token after
// the other.
//
// Equation:  M <- e^log_decay M + v~ k^T;  I <- e^log_decay I + b (x) k^2;  o = read_scale (M / (I
//            + 1)) q, read after the write (Bonnet et al. 2026, "Learning to Remember, Learn, and
//            Forget"; prior precision I_p = 1). The state is (M, I), never (mu, I_p + I):
//            rebuilding I from the sum cancels. The numerator's weight is in v~, which the caller
//            gates; PalimpsaNumerator in palimpsa_ref.h says which weights exist.
// Shapes:    H heads, K key_dim, V value_dim. q, k: [count][H][K]; value (v~), precision (b):
//            [count][H][V]; log_decay: [count][H]; m, i_bar: [H][V][K]; out: [count][H][V]. f32
//            row-major. Empty i_bar and precision mean b = 0, which is Mamba2 (SimpleGLA): the same
//            bits as a zero i_bar and zero precision.
// Units:     log_decay natural log, <= 0.
// Requires:  K a multiple of 8; spans of exactly these sizes, count >= 0 (LETHE_CHECK). precision
//            >= 0.
// Rejects:   none.
// Effects:   updates m and i_bar in place, overwrites out. No span may overlap another, inputs
//            excepted.
// Numerics:  f32. Each state element is fma(v~, k, decay * M) per token; a read sums K terms in 8
//            lanes (index mod 8), one fma chain each, and one fixed tree. Hence the bits are a
//            function of the token sequence and not of its cut into calls. A state or read beyond
//            f32 becomes infinite or NaN and stays so. Cost O(H V K) per token.
// Threads:   safe for distinct states.
#ifndef LETHE_KERNELS_PALIMPSA_PALIMPSA_H_
#define LETHE_KERNELS_PALIMPSA_PALIMPSA_H_

#include <cstdint>

#include "absl/types/span.h"

namespace lethe {

struct PalimpsaShape {
  int64_t num_heads = 1;
  int64_t key_dim = 64;
  int64_t value_dim = 64;
};

struct PalimpsaInputs {
  absl::Span<const float> q;
  absl::Span<const float> k;
  absl::Span<const float> value;
  absl::Span<const float> log_decay;
  absl::Span<const float> precision;
};

void PalimpsaRecurrent(const PalimpsaShape& shape, const PalimpsaInputs& inputs, int64_t count,
                       float read_scale, absl::Span<float> m, absl::Span<float> i_bar,
                       absl::Span<float> out);

// The same state without the reads; inputs.q is not used.
void PalimpsaWrite(const PalimpsaShape& shape, const PalimpsaInputs& inputs, int64_t count,
                   absl::Span<float> m, absl::Span<float> i_bar);

}  // namespace lethe

#endif  // LETHE_KERNELS_PALIMPSA_PALIMPSA_H_
