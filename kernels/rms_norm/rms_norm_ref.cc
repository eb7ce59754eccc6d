#include <cmath>
#include <cstddef>

#include "kernels/base/check.h"
#include "kernels/rms_norm/rms_norm.h"

namespace lethe {

void RmsNormRef(absl::Span<const float> x, absl::Span<const float> gain, double epsilon,
                absl::Span<double> y) {
  LETHE_CHECK(!gain.empty() && x.size() % gain.size() == 0 && x.size() == y.size());
  const size_t num_channels = gain.size();
  for (size_t begin = 0; begin < x.size(); begin += num_channels) {
    double sum_squares = 0.0;
    for (size_t i = 0; i < num_channels; ++i) {
      sum_squares += static_cast<double>(x[begin + i]) * static_cast<double>(x[begin + i]);
    }
    const double root = std::sqrt(sum_squares / static_cast<double>(num_channels) + epsilon);
    for (size_t i = 0; i < num_channels; ++i) {
      y[begin + i] = static_cast<double>(x[begin + i]) / root * static_cast<double>(gain[i]);
    }
  }
}

}  // namespace lethe
