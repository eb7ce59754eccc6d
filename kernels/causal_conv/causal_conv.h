// CausalConvWeights, CausalConvState, CausalConv: depthwise causal convolution with its tail as
// state.
//
// Equation:  y_t[c] = bias[c] + sum_{j=0}^{width-1} w[c][j] z_{t-j}[c]; tokens before rank 0 are
//            absent (docs/model-format.md 2). w[c][0] is the current token's weight; no bias: 0.
// Shapes:    w: [C][width], bias: [C] or empty; z, y: [count][C] f32 row-major, count = z.size() /
//            C, count = 0 is a no-op. C >= 1, width >= 1; width 1 has no state; width <= 8 for
//            CausalConv.
// Units:     none.
// Requires:  sizes as stated, state and weights of equal C and width, y does not overlap z
//            (LETHE_CHECK on sizes).
// Rejects:   CausalConvState::Read: DATA_LOSS when the bytes do not hold a state of this shape.
// Effects:   CausalConv writes y and moves the state on by count tokens. The state is a value: copy
//            it to take a snapshot, assign to go back. It is the last min(n, width-1) inputs and
//            nothing else: rows that are absent are zero bytes.
// Numerics:  one fma chain per element over j = 0, 1, … from the bias; absent tokens are not
//            evaluated, so they are exact no-ops. Bits are independent of how the tokens are cut
//            into calls.
// Threads:   compatible.
#ifndef LETHE_KERNELS_CAUSAL_CONV_CAUSAL_CONV_H_
#define LETHE_KERNELS_CAUSAL_CONV_CAUSAL_CONV_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

#include "kernels/base/byte_io.h"

namespace lethe {

class CausalConvWeights {
 public:
  CausalConvWeights() = default;  // no channels
  CausalConvWeights(absl::Span<const float> w, absl::Span<const float> bias, int64_t width);

  int64_t num_channels() const { return num_channels_; }
  int64_t width() const { return width_; }
  bool has_bias() const { return !bias_.empty(); }
  absl::Span<const float> bias() const { return bias_; }                          // [C] or empty
  const float* tap(int64_t j) const { return taps_.data() + j * num_channels_; }  // [C]

 private:
  int64_t num_channels_ = 0;
  int64_t width_ = 1;
  std::vector<float> taps_;  // [width][C]
  std::vector<float> bias_;
};

class CausalConvState {
 public:
  CausalConvState() = default;  // no channels
  CausalConvState(int64_t num_channels, int64_t width);

  int64_t num_channels() const { return num_channels_; }
  int64_t width() const { return width_; }
  int64_t num_rows() const { return num_rows_; }  // min(n, width - 1) present rows
  // The input `distance` >= 1 tokens before the next one, distance <= num_rows().
  const float* row(int64_t distance) const;
  size_t state_bytes() const { return rows_.size() * sizeof(float); }

  // Takes the last rows of z: [count][C].
  void Append(absl::Span<const float> z);
  // Back to rank 0.
  void Clear();

  // The present rows, oldest first, as one array.
  void AppendTo(ByteWriter* out) const;
  // On error the state is unchanged.
  absl::Status Read(ByteReader* in);

 private:
  int64_t num_channels_ = 0;
  int64_t width_ = 1;
  int64_t num_rows_ = 0;
  std::vector<float> rows_;  // [width-1][C], oldest first; the present rows are the last ones
};

void CausalConv(const CausalConvWeights& weights, absl::Span<const float> z, CausalConvState* state,
                absl::Span<float> y);

// The oracle, over a whole sequence from rank 0, in double.
void CausalConvRef(absl::Span<const float> w, absl::Span<const float> bias, int64_t width,
                   absl::Span<const float> z, absl::Span<double> y);

}  // namespace lethe

#endif  // LETHE_KERNELS_CAUSAL_CONV_CAUSAL_CONV_H_
