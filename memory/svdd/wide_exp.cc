#include "memory/svdd/wide_exp.h"

#include <array>
#include <cmath>
#include <cstddef>

#include "kernels/base/check.h"

namespace lethe::svdd {
namespace {

// ln 2 as three doubles.
constexpr double kLn2High = 0x1.62e42fefa39efp-1;
constexpr double kLn2Middle = 0x1.abc9e3b39803fp-56;
constexpr double kLn2Low = 0x1.7b57a079a1934p-111;

// Taylor: with |r| <= 0.3466, 0.3466^27/27! < 2^-133. Terms from kFirstPlain on are below 2^-57 of
// the sum, so that plain doubles suffice there.
constexpr size_t kTerms = 26;
constexpr size_t kFirstPlain = 14;
constexpr double kZeroBelow = -700.0;  // e^-700 < 2^-1009: covered as an absolute error

std::array<DoubleDouble, kTerms + 1> InverseFactorials() {
  std::array<DoubleDouble, kTerms + 1> inverse;
  inverse[0] = 1.0;
  for (size_t k = 1; k <= kTerms; ++k) inverse[k] = inverse[k - 1] / static_cast<double>(k);
  return inverse;
}

}  // namespace

DoubleDouble WideExp(const DoubleDouble& x) {
  static const std::array<DoubleDouble, kTerms + 1> kInverse = InverseFactorials();
  if (!(x.hi > kZeroBelow)) return {};
  const double k = std::nearbyint(x.hi / kLn2High);
  DoubleDouble r = x - TwoProd(k, kLn2High);
  r = r - TwoProd(k, kLn2Middle);
  r = r - k * kLn2Low;
  double tail = kInverse[kTerms].hi;
  for (size_t i = kTerms; i-- > kFirstPlain;) tail = std::fma(tail, r.hi, kInverse[i].hi);
  DoubleDouble sum = tail;
  for (size_t i = kFirstPlain; i-- > 0;) sum = sum * r + kInverse[i];
  const int exponent = static_cast<int>(k);
  return {std::ldexp(sum.hi, exponent), std::ldexp(sum.lo, exponent)};
}

DoubleDouble WideKernel(absl::Span<const double> a, absl::Span<const double> b, double sigma) {
  LETHE_DCHECK(a.size() == b.size());
  DoubleDouble sum;
  for (size_t c = 0; c < a.size(); ++c) {
    const DoubleDouble difference = TwoSum(a[c], -b[c]);
    sum += difference.lo == 0.0 ? TwoProd(difference.hi, difference.hi) : difference * difference;
  }
  return WideExp(-(sum / TwoProd(sigma, sigma)));
}

double WideKernelError(int64_t dim) { return (static_cast<double>(dim) + 16.0) * 0x1.0p-103; }

}  // namespace lethe::svdd
