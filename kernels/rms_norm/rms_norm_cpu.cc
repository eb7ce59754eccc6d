#include <cmath>
#include <cstddef>

#include "hwy/highway.h"

#include "kernels/base/check.h"
#include "kernels/math/math.h"
#include "kernels/rms_norm/rms_norm.h"

namespace lethe {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void NormalizeRow(absl::Span<const float> x, absl::Span<const float> gain, float epsilon,
                  absl::Span<float> y) {
  const hn::FixedTag<float, 8> d;
  const float root = std::sqrt(SumSquares(x) / static_cast<float>(x.size()) + epsilon);
  const auto roots = hn::Set(d, root);
  size_t i = 0;
  for (; i + 8 <= x.size(); i += 8) {
    const auto scaled = hn::Div(hn::LoadU(d, x.data() + i), roots);
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, gain.data() + i)), d, y.data() + i);
  }
  for (; i < x.size(); ++i) y[i] = x[i] / root * gain[i];
}

}  // namespace

void RmsNorm(absl::Span<const float> x, absl::Span<const float> gain, float epsilon,
             absl::Span<float> y) {
  LETHE_CHECK(!gain.empty() && x.size() % gain.size() == 0 && x.size() == y.size());
  for (size_t begin = 0; begin < x.size(); begin += gain.size()) {
    NormalizeRow(x.subspan(begin, gain.size()), gain, epsilon, y.subspan(begin, gain.size()));
  }
}

}  // namespace lethe
