// Goal: the bounds without a witness are tight enough to print, at the cost of distinct keys, and what
// contradicts itself is refused.
// Method: solved problems; fields spoiled one at a time. That no bound is below the truth:
// svdd_proof_bounds_test.cc.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "memory/svdd/canonical.h"
#include "memory/svdd/proof.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

using ::lethe::testing::StatusIs;

TEST(SvddProofTest, CanonicalSolutionsHaveTinyBounds) {
  std::mt19937_64 random(2);
  const Params params = MakeParamsOrDie(1.0, 20.0, 0x1.0p-11, 16);
  const std::vector<double> keys = MakeKeys(KeyKind::kUnitSphere, 150, 16, &random);
  std::vector<double> gradients;
  ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, keys));
  ASSERT_OK_AND_ASSIGN(
      const OptimalityBounds bounds,
      ProveOptimality(params, keys, {solution.classes, solution.a, solution.rho, nullptr},
                      &gradients));
  ASSERT_EQ(gradients.size(), 150u);
  for (size_t i = 0; i < 150; ++i) {
    if (solution.classes[i] == Partition::kMargin) {
      EXPECT_NEAR(gradients[i], 0.0, 1e-15);
    }
    if (solution.classes[i] == Partition::kError) {
      EXPECT_LT(gradients[i], 0.0);
    }
    if (solution.classes[i] == Partition::kReserve) {
      EXPECT_GT(gradients[i], 0.0);
    }
  }
  EXPECT_LT(bounds.gap, 1e-14);
  EXPECT_LT(bounds.decision_bound, 1e-6);
  EXPECT_LT(bounds.alpha_bound, 1e-5);
  EXPECT_GE(bounds.smallest_margin, solution.smallest_margin * 0.999);
  EXPECT_LE(bounds.smallest_margin, solution.smallest_margin * 1.001 + 1e-9);
}

TEST(SvddProofTest, ThousandsOfCopiesAreProvedLikeTheirFewKeys) {
  // Written out, 16 million wide kernel values: this test would take most of its time limit.
  std::mt19937_64 random(5);
  const Params params = MakeParamsOrDie(1.0, 20.5, 0x1.0p-11, 8);
  const std::vector<double> few = MakeKeys(KeyKind::kUnitSphere, 9, 8, &random);
  std::vector<double> keys;
  for (int64_t i = 0; i < 4000; ++i) {
    const auto from = few.begin() + 8 * static_cast<int64_t>(random() % 9);
    keys.insert(keys.end(), from, from + 8);
  }
  ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, keys));
  std::vector<double> gradients;
  ASSERT_OK_AND_ASSIGN(
      const OptimalityBounds bounds,
      ProveOptimality(params, keys, {solution.classes, solution.a, solution.rho, nullptr},
                      &gradients));
  EXPECT_LT(bounds.gap, 1e-14);
  EXPECT_LT(bounds.decision_bound, 1e-6);
  EXPECT_EQ(bounds.num_margin + bounds.num_error + bounds.num_reserve, 4000);
  for (size_t i = 0; i < 4000; ++i) {
    if (solution.classes[i] == Partition::kMargin) {
      EXPECT_NEAR(gradients[i], 0.0, 1e-14);
    }
  }
  // Copies that a bundle gives different a are not optimal, and the bound knows it.
  Solution moved = solution;
  const auto margin = std::find(moved.classes.begin(), moved.classes.end(), Partition::kMargin);
  ASSERT_NE(margin, moved.classes.end());
  double& changed = moved.a[static_cast<size_t>(margin - moved.classes.begin())];
  changed *= 0.5;
  ASSERT_OK_AND_ASSIGN(const OptimalityBounds loose,
                       ProveOptimality(params, keys, {moved.classes, moved.a, moved.rho, nullptr}));
  EXPECT_GE(loose.alpha_bound * moved.mass, changed) << "what was taken from it";
}

TEST(SvddProofTest, SinglePointNeedsNoGap) {
  const Params params = MakeParamsOrDie(1.0, 8.0, 0x1.0p-11, 1);
  const std::vector<double> keys = {0.0, 0.5, 0.5, 3.0};
  ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, keys));
  ASSERT_OK_AND_ASSIGN(
      const OptimalityBounds bounds,
      ProveOptimality(params, keys, {solution.classes, solution.a, solution.rho, nullptr}));
  EXPECT_EQ(bounds.kernel_sum_bound, 0.0);
  EXPECT_EQ(bounds.alpha_bound, 0.0);
  EXPECT_LT(bounds.rho_bound, 1e-15);
  EXPECT_EQ(bounds.num_error, 4);
}

TEST(SvddProofTest, InconsistentBundlesAreRefused) {
  const Params params = MakeParamsOrDie(1.0, 2.0, 0x1.0p-11, 1);
  const std::vector<double> keys = {0.0, 0.5, 3.0};
  using P = Partition;
  const std::vector<Partition> classes = {P::kMargin, P::kReserve, P::kError};
  const std::vector<double> a = {0.5, 0.0, 1.0};
  const auto prove = [&](auto change) {
    Params p = params;
    std::vector<double> k = keys;
    std::vector<Partition> c = classes;
    std::vector<double> w = a;
    double rho = 0.25;
    change(&p, &k, &c, &w, &rho);
    return ProveOptimality(p, k, {c, w, rho, nullptr}).status();
  };
  using Ks = std::vector<double>;
  using Cs = std::vector<Partition>;
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_OK(prove([](Params*, Ks*, Cs*, Ks*, double*) {}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(prove([&](Params*, Ks* k, Cs*, Ks*, double*) { (*k)[1] = nan; }),
              StatusIs(invalid, "keys"));
  EXPECT_THAT(prove([](Params*, Ks* k, Cs*, Ks*, double*) { (*k)[1] = 0x1.0p401; }),
              StatusIs(invalid, "keys"));
  EXPECT_THAT(prove([](Params*, Ks* k, Cs*, Ks*, double*) { k->pop_back(); }),
              StatusIs(invalid, "keys"));
  EXPECT_THAT(prove([](Params*, Ks*, Cs* c, Ks*, double*) { c->pop_back(); }),
              StatusIs(invalid, "classes"));
  EXPECT_THAT(prove([](Params*, Ks*, Cs* c, Ks*, double*) { (*c)[0] = P::kError; }),
              StatusIs(invalid, "error"));
  EXPECT_THAT(prove([](Params*, Ks*, Cs* c, Ks*, double*) { (*c)[0] = P::kReserve; }),
              StatusIs(invalid, "reserve"));
  EXPECT_THAT(prove([](Params*, Ks*, Cs* c, Ks*, double*) { (*c)[2] = P::kMargin; }),
              StatusIs(invalid, "margin"));
  EXPECT_THAT(prove([](Params*, Ks*, Cs* c, Ks*, double*) { (*c)[2] = static_cast<P>(7); }),
              StatusIs(invalid, "unknown"));
  EXPECT_THAT(prove([](Params*, Ks*, Cs*, Ks* w, double*) { (*w)[0] = 1.5; }),
              StatusIs(invalid, "a is"));
  EXPECT_THAT(prove([&](Params*, Ks*, Cs*, Ks* w, double*) { (*w)[0] = nan; }),
              StatusIs(invalid, "a is"));
  EXPECT_THAT(prove([&](Params*, Ks*, Cs*, Ks*, double* rho) { *rho = nan; }),
              StatusIs(invalid, "rho"));
  EXPECT_THAT(prove([](Params* p, Ks*, Cs*, Ks*, double*) { p->sigma = 1e-160; }),
              StatusIs(invalid, "sigma"));
  EXPECT_THAT(prove([](Params* p, Ks*, Cs*, Ks*, double*) { p->ridge = 0; }),
              StatusIs(invalid, "ridge"));
  EXPECT_THAT(prove([](Params* p, Ks*, Cs*, Ks*, double*) { p->box_mass = 2.0 + 0x1.0p-50; }),
              StatusIs(invalid, "box_mass"));
  EXPECT_THAT(ProveOptimality(params, {}, {}).status(), StatusIs(invalid, "a"));
}

}  // namespace
}  // namespace lethe::svdd
