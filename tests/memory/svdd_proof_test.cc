// Goal: the bounds of the optimality proof are never below the true deviation, and tight enough to
// print.
// Method: random problems of every kind solved with 256-bit arithmetic on the exact kernel
// function; solutions exact, perturbed and wrong; queries in and around the keys. The exponential
// against the same arithmetic.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "boost/multiprecision/cpp_bin_float.hpp"
#include "memory/svdd/active_set_ref.h"
#include "memory/svdd/canonical.h"
#include "memory/svdd/proof.h"
#include "memory/svdd/wide_exp.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

namespace mp = boost::multiprecision;
using ::lethe::testing::StatusIs;
using Wide = mp::number<mp::cpp_bin_float<256, mp::digit_base_2>, mp::et_off>;

Wide ToWide(const DoubleDouble& x) { return Wide(x.hi) + Wide(x.lo); }

Wide ExactKernel(absl::Span<const double> x, absl::Span<const double> y, double sigma) {
  Wide sum = 0;
  for (size_t c = 0; c < x.size(); ++c) {
    const Wide difference = Wide(x[c]) - Wide(y[c]);
    sum += difference * difference;
  }
  return exp(Wide(-sum / (Wide(sigma) * Wide(sigma))));
}

// The exact problem's optimum.
struct Truth {
  Wide mass;
  std::vector<Wide> a;
  Wide rho;
};

struct Case {
  Params params;
  std::vector<double> keys;
  Truth truth;

  size_t n() const { return truth.a.size(); }
  absl::Span<const double> Key(size_t i) const {
    const size_t dim = static_cast<size_t>(params.key_dim);
    return absl::MakeConstSpan(keys).subspan(i * dim, dim);
  }
};

Case MakeCase(const Params& params, std::vector<double> keys) {
  Case c{params, std::move(keys), {}};
  const size_t n = c.keys.size() / static_cast<size_t>(params.key_dim);
  std::vector<std::vector<Wide>> twice_gram(n, std::vector<Wide>(n));
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      twice_gram[i][j] = 2 * (ExactKernel(c.Key(i), c.Key(j), params.sigma) +
                              (i == j ? Wide(params.ridge) : Wide(0)));
    }
  }
  const double mass = Mass(params, static_cast<int64_t>(n));
  ActiveSetRef<Wide> solver(std::move(twice_gram), Wide(mass), Wide(1e-60));
  EXPECT_TRUE(solver.Run());
  c.truth.mass = mass;
  c.truth.a = solver.a();
  c.truth.rho = 1 - solver.GradientOfRank(static_cast<size_t>(std::ceil(mass))) / Wide(mass);
  return c;
}

struct Looseness {
  std::vector<double> gap, kernel, alpha, rho, decision;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

// Compares the bounds with the true deviations of the reported solution.
void ExpectBoundsHold(const Case& c, const Solution& reported, std::mt19937_64* random,
                      Looseness* looseness) {
  ASSERT_OK_AND_ASSIGN(
      const OptimalityBounds bounds,
      ProveOptimality(c.params, c.keys, reported.classes, reported.a, reported.rho));
  std::vector<Wide> change(c.n());
  Wide alpha_deviation = 0;
  for (size_t i = 0; i < c.n(); ++i) {
    change[i] = (Wide(reported.a[i]) - c.truth.a[i]) / c.truth.mass;
    alpha_deviation = std::max<Wide>(alpha_deviation, abs(change[i]));
  }
  const Wide rho_change = Wide(reported.rho) - c.truth.rho;
  EXPECT_LE(alpha_deviation, Wide(bounds.alpha_bound));
  EXPECT_LE(abs(rho_change), Wide(bounds.rho_bound));
  const size_t dim = static_cast<size_t>(c.params.key_dim);
  std::normal_distribution<double> normal;
  Wide kernel_deviation = 0;
  Wide decision_deviation = 0;
  for (size_t trial = 0; trial < 6; ++trial) {
    std::vector<double> query(c.Key(trial % c.n()).begin(), c.Key(trial % c.n()).end());
    for (size_t k = 0; k < dim; ++k) query[k] += 0.3 * static_cast<double>(trial) * normal(*random);
    Wide sum = 0;
    for (size_t i = 0; i < c.n(); ++i)
      sum += change[i] * ExactKernel(query, c.Key(i), c.params.sigma);
    kernel_deviation = std::max<Wide>(kernel_deviation, abs(sum));
    decision_deviation = std::max<Wide>(decision_deviation, abs(Wide(rho_change + 2 * sum)));
  }
  EXPECT_LE(kernel_deviation, Wide(bounds.kernel_sum_bound));
  EXPECT_LE(decision_deviation, Wide(bounds.decision_bound));
  EXPECT_FALSE(bounds.partition_proved);
  EXPECT_EQ(bounds.num_margin + bounds.num_error + bounds.num_reserve, static_cast<int64_t>(c.n()));
  const auto ratio = [](double bound, const Wide& truth) {
    return bound / std::max(1e-30, static_cast<double>(truth));
  };
  looseness->gap.push_back(bounds.gap);
  looseness->kernel.push_back(ratio(bounds.kernel_sum_bound, kernel_deviation));
  looseness->alpha.push_back(ratio(bounds.alpha_bound, alpha_deviation));
  looseness->rho.push_back(ratio(bounds.rho_bound, abs(rho_change)));
  looseness->decision.push_back(ratio(bounds.decision_bound, decision_deviation));
}

// Reported a's margin rows moved by up to `size`.
Solution Perturbed(const Solution& solution, double size, std::mt19937_64* random) {
  Solution moved = solution;
  std::uniform_real_distribution<double> uniform(-size, size);
  for (size_t i = 0; i < moved.a.size(); ++i) {
    if (moved.classes[i] != Partition::kMargin) continue;
    moved.a[i] = std::clamp(moved.a[i] + uniform(*random), 1e-6, 1.0 - 1e-6);
  }
  moved.rho += uniform(*random);
  return moved;
}

// All mass on the first keys: feasible, far from optimal.
Solution Wrong(const Solution& solution) {
  Solution wrong = solution;
  double rest = solution.mass;
  for (size_t i = 0; i < wrong.a.size(); ++i) {
    wrong.a[i] = std::min(1.0, rest);
    rest -= wrong.a[i];
    wrong.classes[i] = wrong.a[i] == 1.0   ? Partition::kError
                       : wrong.a[i] == 0.0 ? Partition::kReserve
                                           : Partition::kMargin;
  }
  return wrong;
}

TEST(SvddProofTest, BoundsAreNeverBelowTheTrueDeviation) {
  std::mt19937_64 random(1);
  Looseness exact;
  Looseness perturbed;
  Looseness wrong;
  int64_t empty_margins = 0;
  for (const KeyKind kind : kAllKinds) {
    for (int trial = 0; trial < 18; ++trial) {
      SCOPED_TRACE(KindName(kind) + std::string(" trial ") + std::to_string(trial));
      const int64_t n = 2 + static_cast<int64_t>(random() % 11);
      const int64_t dim = 1 + static_cast<int64_t>(random() % 4);
      const double box_mass = trial % 3 == 0 ? 2.0 + trial % 4 : 1.0 + 0.37 * trial;
      const double ridge = trial % 4 == 0 ? 1e-8 : 0x1.0p-11;
      const Params params = MakeParamsOrDie(trial % 2 ? 1.3 : 4.0, box_mass, ridge, dim);
      const Case c = MakeCase(params, MakeKeys(kind, n, dim, &random));
      ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, c.keys));
      empty_margins += solution.mass < static_cast<double>(n) &&
                               std::count(solution.classes.begin(), solution.classes.end(),
                                          Partition::kMargin) == 0
                           ? 1
                           : 0;
      ExpectBoundsHold(c, solution, &random, &exact);
      ExpectBoundsHold(c, Perturbed(solution, 1e-7, &random), &random, &perturbed);
      ExpectBoundsHold(c, Perturbed(solution, 1e-2, &random), &random, &perturbed);
      ExpectBoundsHold(c, Wrong(solution), &random, &wrong);
    }
  }
  EXPECT_GE(empty_margins, 5);
  const auto print = [](const char* name, const Looseness& of) {
    std::printf(
        "%-10s median bound/truth: kernel sum %.3g, alpha %.3g, rho %.3g, f %.3g; median G %.3g\n",
        name, Median(of.kernel), Median(of.alpha), Median(of.rho), Median(of.decision),
        Median(of.gap));
  };
  print("canonical", exact);
  print("perturbed", perturbed);
  print("wrong", wrong);
  EXPECT_LT(Median(exact.gap), 1e-12);
  EXPECT_LT(Median(wrong.decision), 1e3) << "the bound says nothing about a wrong solution";
}

TEST(SvddProofTest, CanonicalSolutionsHaveTinyBounds) {
  std::mt19937_64 random(2);
  const Params params = MakeParamsOrDie(1.0, 20.0, 0x1.0p-11, 16);
  const std::vector<double> keys = MakeKeys(KeyKind::kUnitSphere, 150, 16, &random);
  std::vector<double> gradients;
  ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, keys));
  ASSERT_OK_AND_ASSIGN(
      const OptimalityBounds bounds,
      ProveOptimality(params, keys, solution.classes, solution.a, solution.rho, &gradients));
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
      ProveOptimality(params, keys, solution.classes, solution.a, solution.rho, &gradients));
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
                       ProveOptimality(params, keys, moved.classes, moved.a, moved.rho));
  EXPECT_GE(loose.alpha_bound * moved.mass, changed) << "what was taken from it";
}

TEST(SvddProofTest, SinglePointNeedsNoGap) {
  const Params params = MakeParamsOrDie(1.0, 8.0, 0x1.0p-11, 1);
  const std::vector<double> keys = {0.0, 0.5, 0.5, 3.0};
  ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, keys));
  ASSERT_OK_AND_ASSIGN(const OptimalityBounds bounds,
                       ProveOptimality(params, keys, solution.classes, solution.a, solution.rho));
  EXPECT_EQ(bounds.kernel_sum_bound, 0.0);
  EXPECT_EQ(bounds.alpha_bound, 0.0);
  EXPECT_LT(bounds.rho_bound, 1e-15);
  EXPECT_EQ(bounds.num_error, 4);
}

TEST(SvddProofTest, WideExpIsGoodToAHundredBits) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> exponent(-40.0, 9.0);
  Wide worst = 0;
  for (int trial = 0; trial < 60000; ++trial) {
    const double high = -std::exp2(exponent(random));
    const DoubleDouble x = QuickTwoSum(high, high * 0x1.0p-54 * exponent(random) / 40.0);
    if (x.hi < -620.0) continue;
    const Wide exact = exp(ToWide(x));
    worst = std::max<Wide>(worst, abs(Wide(ToWide(WideExp(x)) / exact - 1)));
  }
  EXPECT_LE(worst, Wide(0x1.0p-100)) << static_cast<double>(worst);
  EXPECT_EQ(WideExp(0.0).hi, 1.0);
  EXPECT_EQ(WideExp(-1e6).hi, 0.0);
  EXPECT_LT(WideExp(-690.0).hi, 0x1.0p-990);
}

TEST(SvddProofTest, WideKernelStaysWithinItsBound) {
  std::mt19937_64 random(4);
  for (const int64_t dim : {1, 3, 16, 64}) {
    for (const KeyKind kind :
         {KeyKind::kGaussian, KeyKind::kUnitSphere, KeyKind::kNearDuplicates8}) {
      const std::vector<double> keys = MakeKeys(kind, 20, dim, &random);
      const auto key = [&](size_t i) {
        return absl::MakeConstSpan(keys).subspan(i * static_cast<size_t>(dim),
                                                 static_cast<size_t>(dim));
      };
      for (size_t i = 1; i < 20; ++i) {
        const Wide error =
            abs(Wide(ToWide(WideKernel(key(0), key(i), 0.9)) - ExactKernel(key(0), key(i), 0.9)));
        EXPECT_LE(error, Wide(WideKernelError(dim)));
      }
    }
  }
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
    return ProveOptimality(p, k, c, w, rho).status();
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
  EXPECT_THAT(ProveOptimality(params, {}, {}, {}, 0.0).status(), StatusIs(invalid, "a"));
}

}  // namespace
}  // namespace lethe::svdd
