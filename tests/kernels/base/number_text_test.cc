// Goal: bounds in error messages read as people write them and mean the bound itself.
// Method: texts by hand; awkward doubles are read back.
#include "kernels/base/number_text.h"

#include <cstdlib>
#include <limits>

#include "gtest/gtest.h"

namespace lethe {
namespace {

TEST(NumberTextTest, IntegersAreIntegers) {
  EXPECT_EQ(NumberText(0), "0");
  EXPECT_EQ(NumberText(-3), "-3");
  EXPECT_EQ(NumberText(0x1.0p20), "1048576");
  EXPECT_EQ(NumberText(1e6), "1000000");
  EXPECT_EQ(NumberText(0x1.0p53), "9007199254740992");
}

TEST(NumberTextTest, OtherValuesReadBackAsThemselves) {
  EXPECT_EQ(NumberText(0.5), "0.5");
  EXPECT_EQ(NumberText(1e-8), "1e-08");
  for (const double value : {0x1.0p-20, 0.1, 1.0 / 3.0, 1e300, 0x1.0p-1074}) {
    EXPECT_EQ(std::strtod(NumberText(value).c_str(), nullptr), value);
  }
  EXPECT_EQ(NumberText(std::numeric_limits<double>::infinity()), "inf");
}

}  // namespace
}  // namespace lethe
