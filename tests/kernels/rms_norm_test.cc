// Goal: RmsNorm equals the double reference, row by row, with bits that no other row and no offset
// changes.
// Method: RmsNormRef; the same row alone, in a batch and moved in the buffer.
#include "kernels/rms_norm/rms_norm.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lethe {
namespace {

std::vector<float> RandomValues(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(RmsNormTest, EqualsTheDoubleReference) {
  for (const size_t width : {1u, 5u, 8u, 64u, 256u, 257u}) {
    const std::vector<float> x = RandomValues(4 * width, 1);
    const std::vector<float> gain = RandomValues(width, 2);
    std::vector<float> y(x.size());
    std::vector<double> want(x.size());
    RmsNorm(x, gain, 1e-6f, absl::MakeSpan(y));
    RmsNormRef(x, gain, static_cast<double>(1e-6f), absl::MakeSpan(want));
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(y[i], want[i], 1e-6 * std::abs(want[i]) + 1e-12);
    }
  }
}

TEST(RmsNormTest, RowsDoNotInfluenceEachOther) {
  const size_t width = 40;
  const std::vector<float> x = RandomValues(7 * width, 3);
  const std::vector<float> gain = RandomValues(width, 4);
  std::vector<float> all(x.size());
  RmsNorm(x, gain, 1e-6f, absl::MakeSpan(all));
  for (size_t row = 0; row < 7; ++row) {
    for (size_t offset = 0; offset < 9; ++offset) {
      std::vector<float> moved(offset, 1.0f);
      moved.insert(moved.end(), x.begin() + static_cast<ptrdiff_t>(row * width),
                   x.begin() + static_cast<ptrdiff_t>((row + 1) * width));
      const absl::Span<float> alone = absl::MakeSpan(moved).subspan(offset);
      RmsNorm(alone, gain, 1e-6f, alone);  // in place
      for (size_t i = 0; i < width; ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(alone[i]), std::bit_cast<uint32_t>(all[row * width + i]));
      }
    }
  }
}

TEST(RmsNormTest, ZeroStaysZeroAndNanStaysInItsRow) {
  std::vector<float> x(24, 0.0f);
  x[9] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> gain(8, 2.0f);
  RmsNorm(x, gain, 1e-6f, absl::MakeSpan(x));
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(std::isnan(x[i]), i / 8 == 1);
    EXPECT_TRUE(i / 8 == 1 || x[i] == 0.0f);
  }
}

TEST(RmsNormTest, NoRowsIsNoOp) { RmsNorm({}, std::vector<float>(8, 1.0f), 1e-6f, {}); }

TEST(RmsNormDeathTest, WrongSizesAbort) {
  std::vector<float> x(10);
  EXPECT_DEATH(RmsNorm(x, std::vector<float>(8), 1e-6f, absl::MakeSpan(x)), "check failed");
  EXPECT_DEATH(RmsNorm(x, {}, 1e-6f, absl::MakeSpan(x)), "check failed");
}

}  // namespace
}  // namespace lethe
