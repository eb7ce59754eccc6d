// Goal: the proof's exponential, kernel and sums keep the errors that its bounds add for them.
// Method: against boost's cpp_bin_float, 128 bits for the many points of the exponential (LETHE_TEST_LONG=1:
// 10^8) and 256 for the rest: at random, where the reduction changes its multiple of ln 2, and at the
// ends.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "memory/svdd/outward.h"
#include "memory/svdd/wide_columns.h"
#include "memory/svdd/wide_exp.h"
#include "tests/memory/svdd_exact.h"
#include "tests/memory/svdd_testing.h"

namespace lethe::svdd {
namespace {

namespace mp = boost::multiprecision;
using Wide128 = mp::number<mp::cpp_bin_float<128, mp::digit_base_2>, mp::et_off>;

constexpr int kShares = 64;  // of the points, each with a seed of its own

int64_t PointsPerShare() {
  const char* value = std::getenv("LETHE_TEST_LONG");
  const bool all = value != nullptr && std::string(value) == "1";
  return all ? (100'000'000 + kShares - 1) / kShares : 4'000;
}

// Relative error of WideExp at x.
double ErrorAt(const DoubleDouble& x) {
  const DoubleDouble value = WideExp(x);
  const Wide128 exact = exp(Wide128(Wide128(x.hi) + Wide128(x.lo)));
  return static_cast<double>(abs(Wide128((Wide128(value.hi) + Wide128(value.lo)) / exact - 1)));
}

// The largest error over a share's points.
double WorstOfShare(int share) {
  std::mt19937_64 random(static_cast<uint64_t>(share) + 3);
  std::uniform_real_distribution<double> exponent(-40.0, std::log2(620.0));
  std::uniform_real_distribution<double> uniform(-620.0, 0.0);
  std::uniform_real_distribution<double> unit(-1.0, 1.0);
  double worst = 0.0;
  const int64_t points = PointsPerShare();
  for (int64_t trial = 0; trial < points; ++trial) {
    double high = trial % 2 == 0 ? -std::exp2(exponent(random)) : uniform(random);
    // Half way between multiples of ln 2 the reduced argument is largest.
    if (trial % 8 == 1) {
      high = -(std::floor(-high) + 0.5) * 0x1.62e42fefa39efp-1 * (1.0 + 0x1.0p-50 * unit(random));
    }
    worst = std::max(worst, ErrorAt(QuickTwoSum(high, high * 0x1.0p-54 * unit(random))));
  }
  return worst;
}

TEST(SvddWideTest, ExpIsGoodToAHundredBits) {
  std::atomic<int> next = 0;
  std::vector<double> worst(kShares);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (int share = next++; share < kShares; share = next++) {
        worst[static_cast<size_t>(share)] = WorstOfShare(share);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double largest = *std::max_element(worst.begin(), worst.end());
  std::printf("%lld points, largest relative error %.4f * 2^-100\n",
              static_cast<long long>(kShares * PointsPerShare()), largest * 0x1.0p100);
  EXPECT_LE(largest, 0x1.0p-100);
  EXPECT_GT(largest, 0.0);
}

TEST(SvddWideTest, ExpAtTheEnds) {
  EXPECT_EQ(WideExp(0.0), DoubleDouble(1.0));
  EXPECT_EQ(WideExp(-0.0), DoubleDouble(1.0));
  for (const double x : {-0x1.0p-1074, -0x1.0p-1022, -0x1.0p-110}) {
    EXPECT_LE(abs(Wide(ToWide(WideExp(x)) - exp(Wide(x)))), Wide(0x1.0p-100)) << x;
  }
  for (const double x : {-620.0, -650.0, -699.999, -700.0, -701.0, -1e6, -1e300,
                         -std::numeric_limits<double>::infinity()}) {
    EXPECT_LE(abs(Wide(ToWide(WideExp(x)) - exp(Wide(x)))), Wide(0x1.0p-890)) << x;
  }
  EXPECT_EQ(WideExp(-700.0), DoubleDouble());
}

// Largest |computed - exact kernel| over all pairs of the keys, in units of the bound.
double WorstKernelError(const std::vector<double>& keys, int64_t dim, double sigma) {
  const auto size = static_cast<size_t>(dim);
  const size_t count = keys.size() / size;
  const auto key = [&](size_t i) { return absl::MakeConstSpan(keys).subspan(i * size, size); };
  WideColumns columns(dim, sigma, count);
  for (size_t j = 0; j < count; ++j) columns.SetKey(j, key(j));
  WideArray row(columns.padded_size());
  Wide worst = 0;
  for (size_t i = 0; i < count; ++i) {
    columns.Row(key(i), &row);
    EXPECT_EQ(row.At(i), DoubleDouble(1.0));
    for (size_t j = 0; j < count; ++j) {
      const Wide exact = ExactKernel(key(i), key(j), sigma);
      worst = std::max<Wide>(worst, abs(Wide(ToWide(row.At(j)) - exact)));
    }
    for (size_t j = count; j < columns.padded_size(); ++j) {
      EXPECT_EQ(row.At(j), DoubleDouble());
    }
  }
  return static_cast<double>(Wide(worst / Wide(WideKernelError(dim))));
}

TEST(SvddWideTest, KernelRowsStayWithinTheirBound) {
  std::mt19937_64 random(4);
  double worst = 0.0;
  for (const int64_t dim : {1, 2, 7, 8, 9, 16, 64, 200}) {
    for (const KeyKind kind :
         {KeyKind::kGaussian, KeyKind::kUnitSphere, KeyKind::kNearDuplicates8}) {
      const double sigma = kind == KeyKind::kGaussian ? std::sqrt(static_cast<double>(dim)) : 0.9;
      worst = std::max(worst, WorstKernelError(MakeKeys(kind, 11, dim, &random), dim, sigma));
    }
  }
  // Components of very different sizes: differences that need both words.
  std::vector<double> keys(13 * 5);
  std::normal_distribution<double> normal;
  for (double& x : keys) x = normal(random) * std::exp2(static_cast<double>(random() % 80) - 79.0);
  worst = std::max(worst, WorstKernelError(keys, 5, 0.7));
  // The ranges' ends.
  for (double& x : keys) x = normal(random) * 0x1.0p390;
  worst = std::max(worst, WorstKernelError(keys, 5, 0x1.0p-20));
  for (double& x : keys) x = normal(random) * 0x1.0p-520;
  worst = std::max(worst, WorstKernelError(keys, 5, 0x1.0p-20));
  std::printf("largest kernel error %.3f of the bound\n", worst);
  EXPECT_LE(worst, 1.0);
}

TEST(SvddWideTest, SumsStayWithinTheirBounds) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> uniform;
  for (const size_t count : {8u, 64u, 1000u}) {
    WideArray row(count);
    WideArray weights(count);
    std::vector<double> rounded(count);
    Wide exact = 0;
    Wide exact_rounded = 0;
    double total = 0.0;
    double total_rounded = 0.0;
    for (size_t j = 0; j < count; ++j) {
      row.Set(j, TwoSum(uniform(random), 0x1.0p-54 * uniform(random)));
      weights.Set(j, TwoSum(uniform(random), 0x1.0p-54 * uniform(random)));
      rounded[j] = 1e-9 * (uniform(random) - 0.5);
      exact += ToWide(row.At(j)) * ToWide(weights.At(j));
      exact_rounded += ToWide(row.At(j)) * Wide(rounded[j]);
      total += weights.hi[j];
      total_rounded += std::abs(rounded[j]);
    }
    const double size = static_cast<double>(count) + 8.0;
    EXPECT_LE(abs(Wide(ToWide(WideDot(row, weights)) - exact)), Wide(size * 0x1.0p-104 * total));
    EXPECT_LE(abs(Wide(Wide(RoundedDot(row, rounded)) - exact_rounded)),
              Wide(size * 0x1.0p-52 * total_rounded));
  }
}

TEST(SvddWideTest, RoundingIsOutward) {
  std::mt19937_64 random(6);
  std::uniform_real_distribution<double> uniform;
  for (int trial = 0; trial < 20000; ++trial) {
    const double x = std::ldexp(uniform(random), static_cast<int>(random() % 100) - 50);
    const double y = std::ldexp(uniform(random), static_cast<int>(random() % 100) - 50);
    ASSERT_GE(Wide(SumUp(x, y)), Wide(x) + Wide(y));
    ASSERT_GE(Wide(ProductUp(x, y)), Wide(x) * Wide(y));
    ASSERT_GE(Wide(QuotientUp(x, y)) * Wide(y), Wide(x));
    ASSERT_GE(Wide(RootUp(x)) * Wide(RootUp(x)), Wide(x));
    const DoubleDouble pair = TwoSum(x, -y * 0x1.0p-60);
    ASSERT_GT(Wide(Up(pair)), ToWide(pair));
    ASSERT_LT(Wide(Down(pair)), ToWide(pair));
  }
  EXPECT_EQ(SumUp(0.0, 0.0), 0.0);
  EXPECT_EQ(ProductUp(0.0, 3.0), 0.0);
  EXPECT_EQ(RootUp(0.0), 0.0);
  EXPECT_GT(ProductUp(0x1.0p-600, 0x1.0p-600), 0.0);
}

}  // namespace
}  // namespace lethe::svdd
