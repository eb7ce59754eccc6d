// Goal: kernels/math is accurate to its stated bounds, equal in scalar and array form bit for bit,
// right at the extremes, and free of libm.
// Method: strided walks over the bit patterns of all f32 (and random f64) against long double libm;
// every length 0…40 at every offset against the scalar form; nm over the library.
#include "kernels/math/math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lethe {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMin = std::numeric_limits<float>::min();

// Distance in units of the last place of the exact value (normal range of T).
template <typename T>
double UlpError(T got, long double want) {
  const int exponent = std::max(std::ilogb(want), std::numeric_limits<T>::min_exponent - 1);
  const long double ulp = std::ldexp(1.0L, exponent - std::numeric_limits<T>::digits + 1);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / ulp);
}

// The largest error over floats [low, high] and where the exact value is a normal number.
template <class Function, class Exact>
double WorstUlp(float low, float high, Function function, Exact exact) {
  double worst = 0.0;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 2053) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!(x >= low && x <= high)) continue;
    const long double want = exact(static_cast<long double>(x));
    const long double size = std::fabs(want);
    if (size < kMin || size > std::numeric_limits<float>::max()) continue;
    worst = std::max(worst, UlpError(function(x), want));
  }
  return worst;
}

TEST(MathTest, ExpIsWithinOneUlp) {
  EXPECT_LE(WorstUlp(
                -90, 90, [](float x) { return Exp(x); }, [](long double x) { return expl(x); }),
            1.0);
}

TEST(MathTest, LogIsWithinOneUlp) {
  EXPECT_LE(
      WorstUlp(
          0, kInfinity, [](float x) { return Log(x); }, [](long double x) { return logl(x); }),
      1.0);
}

TEST(MathTest, SigmoidIsWithinItsBound) {
  EXPECT_LE(WorstUlp(
                -87, 90, [](float x) { return Sigmoid(x); },
                [](long double x) { return 1.0L / (1.0L + expl(-x)); }),
            2.5);
}

TEST(MathTest, SiluIsWithinItsBound) {
  EXPECT_LE(WorstUlp(
                -87, 1e30f, [](float x) { return Silu(x); },
                [](long double x) { return x / (1.0L + expl(-x)); }),
            3.0);
}

TEST(MathTest, SoftplusIsWithinItsBound) {
  EXPECT_LE(WorstUlp(
                -87, 1e30f, [](float x) { return Softplus(x); },
                [](long double x) { return x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x)); }),
            2.5);
}

TEST(MathTest, EluIsWithinItsBound) {
  EXPECT_LE(WorstUlp(
                -kInfinity, 1e30f, [](float x) { return Elu(x); },
                [](long double x) { return x > 0 ? x : expm1l(x); }),
            2.5);
}

TEST(MathTest, EluPlusOneIsWithinOneUlp) {
  EXPECT_LE(WorstUlp(
                -87, 1e30f, [](float x) { return EluPlusOne(x); },
                [](long double x) { return x > 0 ? x + 1 : expl(x); }),
            1.0);
}

TEST(MathTest, DoubleExpAndLogAreWithinOneUlp) {
  std::mt19937_64 random(1);
  double worst_exp = 0.0;
  double worst_log = 0.0;
  for (int i = 0; i < 400000; ++i) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    // Half of the arguments over the whole range, half near zero, where a Gram entry lives.
    const double x = i % 2 == 0 ? (unit - 0.5) * 1416.0 : (unit - 0.5) * 8.0;
    worst_exp = std::max(worst_exp, UlpError(Exp(x), expl(static_cast<long double>(x))));
    const double y = i % 2 == 0 ? std::ldexp(1.0 + unit, static_cast<int>(random() % 2040) - 1020)
                                : 0.5 + unit * 1.5;
    if (y == 1.0) continue;
    worst_log = std::max(worst_log, UlpError(Log(y), logl(static_cast<long double>(y))));
  }
  EXPECT_LE(worst_exp, 1.0);
  EXPECT_LE(worst_log, 1.0);
}

TEST(MathTest, ExtremesOfExpAndLog) {
  EXPECT_EQ(Exp(-kInfinity), 0.0f);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(89.0f), kInfinity);
  EXPECT_LT(Exp(88.7f), kInfinity);
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(-87.4f), 0.0f);  // below the smallest normal number
  EXPECT_GE(Exp(-87.3f), kMin);
  EXPECT_EQ(Exp(-1e30f), 0.0f);
  EXPECT_EQ(Log(0.0f), -kInfinity);
  EXPECT_EQ(Log(-0.0f), -kInfinity);
  EXPECT_EQ(Log(1.0f), 0.0f);
  EXPECT_EQ(Log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Log(-1.0f)));
  EXPECT_TRUE(std::isnan(Log(-kInfinity)));
  EXPECT_EQ(Log(0x1p-149f), static_cast<float>(-149 * 0x1.62e42fefa39efp-1));
  EXPECT_EQ(Exp(-std::numeric_limits<double>::infinity()), 0.0);
  EXPECT_EQ(Exp(710.0), std::numeric_limits<double>::infinity());
  EXPECT_LT(Exp(709.7), std::numeric_limits<double>::infinity());
  EXPECT_EQ(Exp(-708.5), 0.0);
  EXPECT_GT(Exp(-708.3), 0.0);
  EXPECT_EQ(Exp(0.0), 1.0);
  EXPECT_EQ(Log(0.0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(Log(1.0), 0.0);
  EXPECT_EQ(Log(0x1p-1074), -1074 * 0x1.62e42fefa39efp-1);
  EXPECT_TRUE(std::isnan(Log(-1.0)));
}

TEST(MathTest, ExtremesOfTheGates) {
  EXPECT_EQ(Sigmoid(-kInfinity), 0.0f);
  EXPECT_EQ(Sigmoid(kInfinity), 1.0f);
  EXPECT_EQ(Sigmoid(0.0f), 0.5f);
  EXPECT_EQ(Sigmoid(-100.0f), 0.0f);
  EXPECT_EQ(Silu(-kInfinity), 0.0f);
  EXPECT_EQ(Silu(kInfinity), kInfinity);
  EXPECT_EQ(Silu(-3e38f), 0.0f);
  EXPECT_EQ(Softplus(-kInfinity), 0.0f);
  EXPECT_EQ(Softplus(kInfinity), kInfinity);
  EXPECT_EQ(Softplus(50.0f), 50.0f);
  EXPECT_EQ(Elu(-kInfinity), -1.0f);
  EXPECT_EQ(Elu(kInfinity), kInfinity);
  EXPECT_EQ(Elu(3.0f), 3.0f);
  EXPECT_TRUE(std::signbit(Elu(-0.0f)));
  EXPECT_EQ(Elu(-0x1p-140f), -0x1p-140f);
  EXPECT_EQ(EluPlusOne(-kInfinity), 0.0f);
  EXPECT_EQ(EluPlusOne(0.0f), 1.0f);
  EXPECT_EQ(EluPlusOne(2.0f), 3.0f);
}

TEST(MathTest, NanPropagates) {
  EXPECT_TRUE(std::isnan(Exp(kNan)));
  EXPECT_TRUE(std::isnan(Log(kNan)));
  EXPECT_TRUE(std::isnan(Sigmoid(kNan)));
  EXPECT_TRUE(std::isnan(Silu(kNan)));
  EXPECT_TRUE(std::isnan(Softplus(kNan)));
  EXPECT_TRUE(std::isnan(Elu(kNan)));
  EXPECT_TRUE(std::isnan(EluPlusOne(kNan)));
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(Log(std::numeric_limits<double>::quiet_NaN())));
}

// Values of every kind, in an order that puts each beside every kind of neighbour.
template <typename T>
std::vector<T> MixedValues(size_t count) {
  std::mt19937_64 random(7);
  std::vector<T> values;
  const T special[] = {T{0},
                       -T{0},
                       T{1},
                       T{-90},
                       T{90},
                       std::numeric_limits<T>::infinity(),
                       -std::numeric_limits<T>::infinity(),
                       std::numeric_limits<T>::quiet_NaN(),
                       std::numeric_limits<T>::denorm_min(),
                       std::numeric_limits<T>::max()};
  while (values.size() < count) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    values.push_back(random() % 4 == 0 ? special[random() % std::size(special)]
                                       : static_cast<T>((unit - 0.4) * 40.0));
  }
  return values;
}

template <typename T>
auto Bits(T x) {
  return std::bit_cast<std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>(x);
}

template <typename T>
void ExpectArrayEqualsScalar(void (*array)(absl::Span<const T>, absl::Span<T>), T (*scalar)(T)) {
  const std::vector<T> x = MixedValues<T>(64);
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t length = 0; length <= 40; ++length) {
      std::vector<T> y(64, T{5});
      array(absl::MakeConstSpan(x).subspan(begin, length),
            absl::MakeSpan(y).subspan(begin, length));
      for (size_t i = 0; i < y.size(); ++i) {
        const bool inside = i >= begin && i < begin + length;
        ASSERT_EQ(Bits(y[i]), Bits(inside ? scalar(x[i]) : T{5})) << begin << " " << length;
      }
    }
  }
  std::vector<T> in_place = x;
  array(in_place, absl::MakeSpan(in_place));
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(Bits(in_place[i]), Bits(scalar(x[i])));
}

TEST(MathTest, ArrayFormEqualsScalarFormAtEveryPosition) {
  ExpectArrayEqualsScalar<float>(Exp, Exp);
  ExpectArrayEqualsScalar<double>(Exp, Exp);
  ExpectArrayEqualsScalar<float>(Log, Log);
  ExpectArrayEqualsScalar<double>(Log, Log);
  ExpectArrayEqualsScalar<float>(Sigmoid, Sigmoid);
  ExpectArrayEqualsScalar<float>(Silu, Silu);
  ExpectArrayEqualsScalar<float>(Softplus, Softplus);
  ExpectArrayEqualsScalar<float>(Elu, Elu);
  ExpectArrayEqualsScalar<float>(EluPlusOne, EluPlusOne);
}

// The order of math.h, spelled out one lane at a time.
template <typename T>
T DotByLanes(const std::vector<T>& x, const std::vector<T>& y, size_t length) {
  T l[8] = {};
  for (size_t i = 0; i < length; ++i) l[i % 8] = std::fma(x[i], y[i], l[i % 8]);
  return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

TEST(MathTest, DotFollowsItsLanesAndTree) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (size_t length = 0; length < 70; ++length) {
    std::vector<float> x(length), y(length), ones(length, 1.0f);
    std::vector<double> xd(length), yd(length);
    for (size_t i = 0; i < length; ++i) {
      xd[i] = normal(random);
      yd[i] = normal(random);
      x[i] = static_cast<float>(xd[i]);
      y[i] = static_cast<float>(yd[i]);
    }
    EXPECT_EQ(Bits(Dot(x, y)), Bits(DotByLanes(x, y, length)));
    EXPECT_EQ(Bits(Dot(xd, yd)), Bits(DotByLanes(xd, yd, length)));
    EXPECT_EQ(Bits(SumSquares(x)), Bits(DotByLanes(x, x, length)));
    EXPECT_EQ(Bits(Sum(x)), Bits(DotByLanes(x, ones, length)));
  }
}

TEST(MathTest, L2NormalizeGivesUnitLengthAndKeepsZero) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (const size_t length : {1u, 7u, 8u, 64u, 100u}) {
    std::vector<float> x(length), y(length);
    for (float& value : x) value = normal(random) * 3.0f;
    L2Normalize(x, absl::MakeSpan(y));
    double sum_squares = 1e-12;
    for (const float value : x) sum_squares += static_cast<double>(value) * value;
    for (size_t i = 0; i < length; ++i) {
      EXPECT_NEAR(y[i], x[i] / std::sqrt(sum_squares), 4e-7);
    }
  }
  std::vector<float> zeros(16, 0.0f);
  L2Normalize(zeros, absl::MakeSpan(zeros));
  EXPECT_THAT(zeros, testing::Each(0.0f));
}

// LETHE_KERNEL_LIBRARIES: what may reach state; its oracles (*_ref.cc) may use libm.
TEST(MathTest, LibrariesImportNoTranscendentalFunction) {
  std::FILE* pipe = popen("nm -A -u " LETHE_KERNEL_LIBRARIES, "r");
  ASSERT_NE(pipe, nullptr);
  size_t num_lines = 0;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    ++num_lines;
    const std::string text = line;
    if (text.find("_ref.cc.o") != std::string::npos) continue;
    const std::string symbol = text.substr(text.rfind(' ') + 1);
    for (const char* name :
         {"exp", "expf", "exp2", "exp2f", "expm1", "expm1f", "log", "logf", "log2", "log1p",
          "log1pf", "pow", "powf", "tanh", "tanhf", "sin", "cos", "erf"}) {
      EXPECT_NE(symbol, std::string(name) + "\n") << text;
    }
  }
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_GT(num_lines, 0u);
}

}  // namespace
}  // namespace lethe
