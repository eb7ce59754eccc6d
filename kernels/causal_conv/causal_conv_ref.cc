#include "kernels/base/check.h"
#include "kernels/causal_conv/causal_conv.h"

namespace lethe {

void CausalConvRef(absl::Span<const float> w, absl::Span<const float> bias, int64_t width,
                   absl::Span<const float> z, absl::Span<double> y) {
  LETHE_CHECK(width >= 1 && z.size() == y.size());
  const int64_t num_channels = static_cast<int64_t>(w.size()) / width;
  const int64_t count = static_cast<int64_t>(z.size()) / num_channels;
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t c = 0; c < num_channels; ++c) {
      double sum = bias.empty() ? 0.0 : static_cast<double>(bias[static_cast<size_t>(c)]);
      for (int64_t j = 0; j < width && j <= t; ++j) {
        sum += static_cast<double>(w[static_cast<size_t>(c * width + j)]) *
               static_cast<double>(z[static_cast<size_t>((t - j) * num_channels + c)]);
      }
      y[static_cast<size_t>(t * num_channels + c)] = sum;
    }
  }
}

}  // namespace lethe
