// Goal: RandomState, DefaultRng and TorchRandom draw what numpy and torch draw.
// Method: stored values of numpy 1.24.2 and torch 1.13.0 (Debian 12), seeds as in the tests: first
// ones, far ones, and those from the ziggurat's tail.
#include "paper/numpy_random.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "paper/torch_random.h"

namespace lethe::paper {
namespace {

using ::testing::ElementsAre;

// Relative to the value, as DefaultRng promises.
void ExpectClose(double got, double want, double tolerance) {
  EXPECT_LE(std::abs(got - want), tolerance * std::abs(want)) << got << " for " << want;
}

TEST(DefaultRngTest, NormalsAreNumpys) {
  const std::vector<double> x = DefaultRng(0).Normals(200000);
  const std::vector<double> first = {0.1257302210933933,  -0.1321048632913019, 0.6404226504432821,
                                     0.10490011715303971, -0.535669373161111,  0.36159505490948474};
  for (size_t i = 0; i < first.size(); ++i) ExpectClose(x[i], first[i], 2e-14);
  ExpectClose(x[303], -3.772275156122734, 2e-14);  // tail
  ExpectClose(x[478], -3.899421730054339, 2e-14);
  ExpectClose(x[10477], 3.945549686526577, 2e-14);
  ExpectClose(x[199999], -0.26553977625065545, 2e-14);
}

TEST(DefaultRngTest, IntegersAndChoicesAreNumpys) {
  DefaultRng random(12345);
  std::vector<int64_t> drawn;
  for (int i = 0; i < 5; ++i) drawn.push_back(random.Below(10));
  EXPECT_THAT(drawn, ElementsAre(6, 2, 7, 3, 2));
  EXPECT_THAT(random.Choice(24, 2), ElementsAre(18, 15));
  EXPECT_THAT(random.Choice(24, 2), ElementsAre(22, 9));
  EXPECT_THAT(random.Choice(24, 2), ElementsAre(7, 13));
  EXPECT_THAT(random.Choice(12, 5), ElementsAre(7, 8, 1, 2, 11));
  EXPECT_EQ(random.Uniform(), 0.6672374531003724);
}

TEST(DefaultRngTest, SeedsHaveSixtyFourBits) {
  EXPECT_EQ(DefaultRng((uint64_t{1} << 40) + 3).Uniform(), 0.7736560850714245);
}

TEST(DefaultRngTest, OneIsDrawnWithoutADraw) {
  DefaultRng random(12345);
  EXPECT_EQ(random.Below(1), 0);
  EXPECT_EQ(random.Below(10), 6);
  EXPECT_THAT(random.Choice(1, 0), ElementsAre());
}

TEST(RandomStateTest, NormalsAreNumpys) {
  const std::vector<double> x = RandomState(0).Normals(100001);
  const std::vector<double> first = {1.764052345967664, 0.4001572083672233, 0.9787379841057392,
                                     2.240893199201458, 1.8675579901499675};
  for (size_t i = 0; i < first.size(); ++i) ExpectClose(x[i], first[i], 1e-15);
  ExpectClose(x[100000], -0.48379749195754734, 1e-15);
}

TEST(RandomStateTest, IntegersAndPermutationsAreNumpys) {
  RandomState random(7);
  std::vector<int64_t> drawn;
  for (int i = 0; i < 5; ++i) drawn.push_back(random.Below(10));
  EXPECT_THAT(drawn, ElementsAre(4, 9, 6, 3, 3));
  EXPECT_THAT(random.Permutation(8), ElementsAre(3, 6, 2, 5, 0, 1, 4, 7));
  EXPECT_THAT(random.Choice(12, 5), ElementsAre(1, 5, 2, 3, 11));
  ExpectClose(random.Normal(), -0.014968207048865785, 1e-15);
}

TEST(TorchRandomTest, NormalsAreTorchs) {
  TorchRandom random(0);
  const auto expect = [&](int64_t count, double first, double third, double last) {
    const std::vector<double> x = random.Normals(count);
    ASSERT_EQ(static_cast<int64_t>(x.size()), count);
    ExpectClose(x[0], first, 1e-14);
    ExpectClose(x[2], third, 1e-14);
    ExpectClose(x.back(), last, 1e-14);
  };
  expect(20, -2.310411800234176, -1.0608166785462863, -0.7498915228391941);
  expect(9, -1.029702181843019, 0.27336773842007633, -1.0885836526934918);
  expect(20, 0.36904473680395194, -3.1452962731231335, 0.8542078805744913);
  expect(9, -0.2665963045720212, 0.45202245991348733, -0.15909262674997426);
  expect(16, -0.5149669974493434, 1.1096535136027106, -0.11727393443191467);
}

}  // namespace
}  // namespace lethe::paper
