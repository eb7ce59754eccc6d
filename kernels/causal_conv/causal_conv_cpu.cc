#include "hwy/highway.h"

#include "kernels/base/check.h"
#include "kernels/causal_conv/causal_conv.h"

namespace lethe {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kWidthMax = 8;  // docs/model-format.md: conv_width 1 … 8

// One token: rows[j] is the input j tokens back, for the num_taps taps that are present.
void ConvolveToken(const CausalConvWeights& weights, const float* const* rows, int64_t num_taps,
                   float* y) {
  const hn::FixedTag<float, 8> d;
  const int64_t num_channels = weights.num_channels();
  const float* bias = weights.has_bias() ? weights.bias().data() : nullptr;
  int64_t c = 0;
  for (; c + 8 <= num_channels; c += 8) {
    auto sum = bias != nullptr ? hn::LoadU(d, bias + c) : hn::Zero(d);
    for (int64_t j = 0; j < num_taps; ++j) {
      sum = hn::MulAdd(hn::LoadU(d, weights.tap(j) + c), hn::LoadU(d, rows[j] + c), sum);
    }
    hn::StoreU(sum, d, y + c);
  }
  for (; c < num_channels; ++c) {
    const hn::FixedTag<float, 1> d1;
    auto sum = hn::Set(d1, bias != nullptr ? bias[c] : 0.0f);
    for (int64_t j = 0; j < num_taps; ++j) {
      sum = hn::MulAdd(hn::Set(d1, weights.tap(j)[c]), hn::Set(d1, rows[j][c]), sum);
    }
    y[c] = hn::GetLane(sum);
  }
}

}  // namespace

void CausalConv(const CausalConvWeights& weights, absl::Span<const float> z, CausalConvState* state,
                absl::Span<float> y) {
  const int64_t num_channels = weights.num_channels();
  const int64_t width = weights.width();
  LETHE_CHECK(num_channels >= 1 && width <= kWidthMax);
  LETHE_CHECK(state->num_channels() == num_channels && state->width() == width);
  LETHE_CHECK(z.size() % static_cast<size_t>(num_channels) == 0 && y.size() == z.size());
  const int64_t count = static_cast<int64_t>(z.size()) / num_channels;
  const float* rows[kWidthMax] = {};
  for (int64_t t = 0; t < count; ++t) {
    int64_t num_taps = 0;
    for (; num_taps < width && num_taps <= t + state->num_rows(); ++num_taps) {
      rows[num_taps] =
          num_taps <= t ? z.data() + (t - num_taps) * num_channels : state->row(num_taps - t);
    }
    ConvolveToken(weights, rows, num_taps, y.data() + t * num_channels);
  }
  state->Append(z);
}

}  // namespace lethe
