// Goal: double-double arithmetic keeps its error bounds, WideFixed is exact, the grid rounds to
// nearest, and the maintained Cholesky factor survives any order of appends and removals.
// Method: random operands at many scales against 300-bit arithmetic; random sequences against a
// fresh factor.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "boost/multiprecision/cpp_bin_float.hpp"
#include "memory/svdd/cholesky.h"
#include "memory/svdd/double_double.h"
#include "memory/svdd/gram_cache.h"
#include "memory/svdd/polish.h"
#include "memory/svdd/wide_fixed.h"

namespace lethe::svdd {
namespace {

namespace mp = boost::multiprecision;
using Wide = mp::number<mp::cpp_bin_float<400, mp::digit_base_2>, mp::et_off>;

Wide ToWide(const DoubleDouble& x) { return Wide(x.hi) + Wide(x.lo); }

class Operands {
 public:
  double Double() { return std::ldexp(uniform_(random_), static_cast<int>(random_() % 40) - 20); }
  DoubleDouble Pair() {
    const double high = Double();
    return QuickTwoSum(high, high * uniform_(random_) * 0x1.0p-53);
  }
  uint64_t Bits() { return random_(); }

 private:
  std::mt19937_64 random_{1};
  std::uniform_real_distribution<double> uniform_{-1.0, 1.0};
};

double RelativeError(const DoubleDouble& result, const Wide& exact) {
  if (exact == 0) return result.hi == 0.0 ? 0.0 : 1.0;
  return static_cast<double>(abs(Wide((ToWide(result) - exact) / exact)));
}

TEST(SvddArithmeticTest, DoubleDoubleKeepsItsBounds) {
  Operands next;
  constexpr double kUnitSquared = 0x1.0p-106;
  for (int trial = 0; trial < 8000; ++trial) {
    const DoubleDouble x = next.Pair();
    const DoubleDouble y = next.Pair();
    const double z = next.Double();
    EXPECT_EQ(ToWide(TwoSum(x.hi, z)), Wide(x.hi) + Wide(z));
    EXPECT_EQ(ToWide(TwoProd(x.hi, z)), Wide(x.hi) * Wide(z));
    EXPECT_LE(RelativeError(x + z, ToWide(x) + Wide(z)), 2.01 * kUnitSquared);
    EXPECT_LE(RelativeError(x + y, ToWide(x) + ToWide(y)), 3.01 * kUnitSquared);
    EXPECT_LE(RelativeError(x - y, ToWide(x) - ToWide(y)), 3.01 * kUnitSquared);
    EXPECT_LE(RelativeError(x * z, ToWide(x) * Wide(z)), 2.01 * kUnitSquared);
    EXPECT_LE(RelativeError(x * y, ToWide(x) * ToWide(y)), 5.01 * kUnitSquared);
    EXPECT_LE(RelativeError(x / z, ToWide(x) / Wide(z)), 3.01 * kUnitSquared);
    EXPECT_LE(RelativeError(x / y, ToWide(x) / ToWide(y)), 15.01 * kUnitSquared);
    EXPECT_LE(RelativeError(Sqrt(Abs(x)), sqrt(Wide(abs(ToWide(x))))), 3.2 * kUnitSquared);
  }
}

TEST(SvddArithmeticTest, WideFixedIsExactInItsRange) {
  Operands next;
  for (int trial = 0; trial < 2000; ++trial) {
    WideFixed fixed = WideFixed::FromDouble(next.Double());
    Wide exact = Wide(fixed.ToDouble());
    for (int step = 0; step < 8; ++step) {
      const double x = next.Double();
      const double factor = next.Double();
      switch (next.Bits() % 4) {
        case 0:
          fixed += WideFixed::FromDouble(x);
          exact += Wide(x);
          break;
        case 1:
          fixed -= WideFixed::FromDouble(x);
          exact -= Wide(x);
          break;
        case 2:
          fixed = -fixed;
          exact = -exact;
          break;
        default:
          // Two factors of 53 bits at 2^-20 and above fit.
          fixed.AddProduct(factor, WideFixed::FromDouble(x));
          exact += Wide(factor) * Wide(x);
          break;
      }
    }
    const double high = fixed.ToDouble();
    WideFixed rest = fixed;
    rest -= WideFixed::FromDouble(high);
    EXPECT_LE(abs(Wide(Wide(high) + Wide(rest.ToDouble()) - exact)), abs(exact) * Wide(0x1.0p-100));
    EXPECT_EQ(fixed.negative(), exact < 0);
    EXPECT_EQ(fixed < WideFixed(), exact < 0);
  }
  EXPECT_EQ(WideFixed::FromDouble(0x1.0p-300).ToDouble(), 0.0);
}

TEST(SvddArithmeticTest, GridRoundsToNearest) {
  Operands next;
  for (int trial = 0; trial < 20000; ++trial) {
    const DoubleDouble x = next.Pair() * (trial % 2 == 0 ? 1.0 : 0x1.0p-12);
    const double rounded = RoundToGrid(x);
    const Wide error = abs(Wide(Wide(rounded) - ToWide(x)));
    if (std::abs(x.hi) < 0x1.0p-8) {
      EXPECT_EQ(rounded * 0x1.0p60, std::nearbyint(rounded * 0x1.0p60));
      EXPECT_LE(error, Wide(0x1.0p-61));
    } else {
      EXPECT_LE(error, abs(Wide(std::nextafter(rounded, 1e9) - rounded)) / 2);
    }
  }
  EXPECT_EQ(RoundToGrid(DoubleDouble(0x1.8p-60, 0x1.0p-130)), 0x1.0p-59);
  EXPECT_EQ(RoundToGrid(DoubleDouble(0x1.8p-60, -0x1.0p-130)), 0x1.0p-60);
}

TEST(SvddArithmeticTest, FactorFollowsItsMarginSet) {
  std::mt19937_64 random(2);
  std::normal_distribution<double> normal;
  const int64_t n = 40;
  std::vector<double> keys(static_cast<size_t>(n * 3));
  for (double& x : keys) x = 0.5 * normal(random);
  // Nearly equal keys; equal ones are merged, some with many copies.
  for (size_t c = 0; c < 15; ++c) keys[60 + c] = keys[c] * (1.0 + 0x1.0p-50);
  for (int copy = 0; copy < 500; ++copy) {
    const size_t from = 3 * (random() % 8);
    keys.insert(keys.end(), {keys[from], keys[from + 1], keys[from + 2]});
  }
  GramCache gram(1.0, 3);
  gram.Append(keys);
  ASSERT_EQ(gram.num_groups(), n);
  const double ridge = 1e-8;
  CholeskyFactor factor(ridge);
  std::vector<bool> member(static_cast<size_t>(n), false);
  double worst = 0.0;
  for (int step = 0; step < 600; ++step) {
    member[random() % static_cast<size_t>(n)].flip();
    std::vector<int64_t> margin;
    for (int64_t i = 0; i < n; ++i) {
      if (member[static_cast<size_t>(i)]) margin.push_back(i);
    }
    SyncFactor(&gram, gram.weights(), margin, &factor);
    ASSERT_EQ(factor.size(), margin.size());
    // Backward stable: A x of the solution x of A x = 1 is 1 to rounding, however ill-conditioned A
    // is.
    std::vector<double> x(factor.size(), 1.0);
    factor.Solve(absl::MakeSpan(x));
    double scale = 0.0;
    for (const double value : x) scale += std::abs(value);
    for (size_t p = 0; p < x.size(); ++p) {
      double sum = 2.0 * ridge / factor.weights()[p] * x[p];
      for (size_t q = 0; q < x.size(); ++q) {
        sum += 2.0 * gram.Row(factor.ids()[p])[static_cast<size_t>(factor.ids()[q])] * x[q];
      }
      worst = std::max(worst, std::abs(sum - 1.0) / scale);
    }
  }
  EXPECT_LE(worst, 1e-13);
}

}  // namespace
}  // namespace lethe::svdd
