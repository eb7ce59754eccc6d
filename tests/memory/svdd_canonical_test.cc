// Goal: the canonical solution is the optimum, and its bits depend on the ordered keys and the
// parameters alone.
// Method: random problems of twelve kinds against the KKT conditions and the plain reference; every
// way of feeding, truncating, copying and re-solving compared bit for bit; M tuned next to changes
// of the partition.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "memory/svdd/canon.h"
#include "memory/svdd/canonical.h"
#include "memory/svdd/svdd_ref.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/fault_switch.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

using ::lethe::testing::StatusIs;

absl::Span<const double> Keys(const std::vector<double>& keys, int64_t dim, int64_t begin,
                              int64_t count) {
  return absl::MakeConstSpan(keys).subspan(static_cast<size_t>(begin * dim),
                                           static_cast<size_t>(count * dim));
}

int64_t Count(const Solution& solution, Partition place) {
  return std::count(solution.classes.begin(), solution.classes.end(), place);
}

TEST(SvddCanonicalTest, SatisfiesKktAndEqualsTheReference) {
  std::mt19937_64 random(1);
  int64_t with_reserves = 0;
  for (const KeyKind kind : kAllKinds) {
    for (int trial = 0; trial < 12; ++trial) {
      const int64_t n = 2 + static_cast<int64_t>(random() % 70);
      const int64_t dim = 1 + static_cast<int64_t>(random() % 6);
      const double box_mass = 1.0 + static_cast<double>(random() % 200) / (trial % 2 ? 8.0 : 10.0);
      const double ridge = trial % 3 == 0 ? 1e-6 : 0x1.0p-11;
      const Params params = MakeParamsOrDie(trial % 4 == 0 ? 0.3 : 1.5, box_mass, ridge, dim);
      const std::vector<double> keys = MakeKeys(kind, n, dim, &random);
      ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, keys));
      SCOPED_TRACE(KindName(kind) + std::string(" trial ") + std::to_string(trial));
      EXPECT_LE(KktViolation(params, keys, solution), solution.ambiguous ? 1e-6 : 1e-13);
      const RefSolution ref = SolveRef(params, keys);
      ASSERT_TRUE(ref.converged);
      for (size_t i = 0; i < ref.a.size(); ++i) {
        EXPECT_NEAR(static_cast<double>(ref.a[i]), solution.a[i], 1e-13 / ridge) << i;
      }
      EXPECT_NEAR(static_cast<double>(ref.rho), solution.rho, 1e-13);
      with_reserves += Count(solution, Partition::kReserve) > 0 ? 1 : 0;
    }
  }
  EXPECT_GE(with_reserves, 60) << "the problems are too easy";
}

TEST(SvddCanonicalTest, CutsIntoCallsDoNotMatter) {
  std::mt19937_64 random(2);
  for (const KeyKind kind : kAllKinds) {
    const int64_t dim = 3;
    const int64_t n = 150;
    const Params params = MakeParamsOrDie(1.1, 20.0, 0x1.0p-11, dim);
    const std::vector<double> keys = MakeKeys(kind, n, dim, &random);
    ASSERT_OK_AND_ASSIGN(const Solution whole, SolveCanonical(params, keys));
    for (const int64_t cut : {1, 7, 64}) {
      CanonicalSolver solver(params);
      for (int64_t begin = 0; begin < n; begin += cut) {
        ASSERT_OK(solver.Append(Keys(keys, dim, begin, std::min(cut, n - begin))));
        ASSERT_OK(solver.Solve());
      }
      EXPECT_TRUE(SameBits(whole, solver.solution())) << KindName(kind) << " cut " << cut;
      EXPECT_EQ(whole.smallest_margin, solver.solution().smallest_margin) << KindName(kind);
      EXPECT_EQ(solver.counters().uncertified_gaps, 0) << KindName(kind);
    }
  }
}

TEST(SvddCanonicalTest, TruncationEqualsNeverHavingSeenTheRest) {
  std::mt19937_64 random(3);
  for (const KeyKind kind : kAllKinds) {
    const int64_t dim = 4;
    const Params params = MakeParamsOrDie(1.0, 17.5, 0x1.0p-11, dim);
    const std::vector<double> keys = MakeKeys(kind, 120, dim, &random);
    CanonicalSolver solver(params);
    ASSERT_OK(solver.Append(Keys(keys, dim, 0, 60)));
    ASSERT_OK(solver.Solve());
    const Solution at_60 = solver.solution();
    ASSERT_OK(solver.Append(Keys(keys, dim, 60, 60)));
    ASSERT_OK(solver.Solve());
    solver.Truncate(60, at_60);
    EXPECT_EQ(solver.num_keys(), 60);
    CanonicalSolver copy(solver);
    for (CanonicalSolver* each : {&solver, &copy}) {
      ASSERT_OK(each->Append(Keys(keys, dim, 90, 30)));
      ASSERT_OK(each->Solve());
    }
    std::vector<double> retained(keys.begin(), keys.begin() + 60 * dim);
    retained.insert(retained.end(), keys.begin() + 90 * dim, keys.end());
    ASSERT_OK_AND_ASSIGN(const Solution fresh, SolveCanonical(params, retained));
    EXPECT_TRUE(SameBits(fresh, solver.solution())) << KindName(kind);
    EXPECT_TRUE(SameBits(fresh, copy.solution())) << KindName(kind);
  }
}

TEST(SvddCanonicalTest, UpToMassManyKeysHaveWeightOneExactly) {
  std::mt19937_64 random(4);
  for (const double box_mass : {8.0, 8.5, 12.3}) {
    const Params params = MakeParamsOrDie(1.0, box_mass, 0x1.0p-11, 5);
    const std::vector<double> keys = MakeKeys(KeyKind::kGaussian, 20, 5, &random);
    CanonicalSolver solver(params);
    for (int64_t n = 1; n <= 20; ++n) {
      ASSERT_OK(solver.Append(Keys(keys, 5, n - 1, 1)));
      ASSERT_OK(solver.Solve());
      const Solution& solution = solver.solution();
      EXPECT_LE(KktViolation(params, Keys(keys, 5, 0, n), solution), 1e-13);
      if (static_cast<double>(n) <= box_mass) {
        EXPECT_EQ(solution.a, std::vector<double>(static_cast<size_t>(n), 1.0));
        EXPECT_EQ(solution.mass, static_cast<double>(n));
      } else {
        EXPECT_EQ(solution.mass, box_mass);
        EXPECT_LT(Count(solution, Partition::kError), n);
      }
      ASSERT_OK_AND_ASSIGN(const Solution batch, SolveCanonical(params, Keys(keys, 5, 0, n)));
      EXPECT_TRUE(SameBits(batch, solution));
    }
  }
}

TEST(SvddCanonicalTest, OneKeyAndNone) {
  const Params params = MakeParamsOrDie(1.0, 1.0, 0x1.0p-11, 2);
  CanonicalSolver solver(params);
  ASSERT_OK(solver.Solve());
  EXPECT_EQ(solver.solution().num_keys, 0);
  ASSERT_OK_AND_ASSIGN(const Solution one, SolveCanonical(params, {0.25, 0.5}));
  EXPECT_EQ(one.a, (std::vector<double>{1.0}));
  EXPECT_EQ(one.rho, 1.0 - 2.0 * (1.0 + 0x1.0p-11));
}

TEST(SvddCanonicalTest, ExactDuplicatesShareTheirWeight) {
  const Params params = MakeParamsOrDie(1.0, 1.0, 0x1.0p-11, 1);
  ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, {0.0, 0.0, 0.0, 2.0, -0.0}));
  EXPECT_EQ(solution.a[0], solution.a[1]);
  EXPECT_EQ(solution.a[0], solution.a[2]);
  EXPECT_EQ(solution.a[0], solution.a[4]);
  EXPECT_GT(solution.a[3], solution.a[0]);
}

TEST(SvddCanonicalTest, EmptyMarginIsSolved) {
  // Two far pairs and M = 2: one of each pair would do, but equal weights 1/2 are optimal; with M =
  // 4 all. Three tight clusters of different sizes and an integer M leave whole keys at the bound.
  std::mt19937_64 random(5);
  int64_t empty = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const Params params = MakeParamsOrDie(4.0, 3.0 + trial % 5, 0x1.0p-11, 2);
    const std::vector<double> keys = MakeKeys(KeyKind::kGaussian, 9 + trial % 12, 2, &random);
    ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, keys));
    EXPECT_LE(KktViolation(params, keys, solution), 1e-13);
    if (Count(solution, Partition::kMargin) > 0) continue;
    ++empty;
    EXPECT_EQ(static_cast<double>(Count(solution, Partition::kError)), solution.mass);
    // rho is the m-th largest h, whatever the reserves are.
    const RefSolution ref = SolveRef(params, keys);
    EXPECT_NEAR(static_cast<double>(ref.rho), solution.rho, 1e-14);
  }
  EXPECT_GE(empty, 3);
}

TEST(SvddCanonicalTest, HugeAndTinySigma) {
  std::mt19937_64 random(6);
  for (const double sigma : {0x1.0p-20, 1e-3, 1e3, 0x1.0p20}) {
    for (const KeyKind kind : {KeyKind::kGaussian, KeyKind::kUnitSphere, KeyKind::kCollinear}) {
      const Params params = MakeParamsOrDie(sigma, 10.3, 0x1.0p-11, 3);
      const std::vector<double> keys = MakeKeys(kind, 40, 3, &random);
      ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, keys));
      EXPECT_LE(KktViolation(params, keys, solution), 1e-13) << sigma;
      if (sigma < 1e-2) {  // K = I: equal weights
        EXPECT_EQ(Count(solution, Partition::kMargin), 40);
        EXPECT_NEAR(solution.a[7], 10.3 / 40, 1e-15);
      }
    }
  }
}

// Solves with every key fed alone and compares with one cold solve.
void ExpectOneResult(const Params& params, const std::vector<double>& keys,
                     const std::vector<Partition>& wrong_classes, Counters* total) {
  const int64_t dim = params.key_dim;
  const int64_t n = static_cast<int64_t>(keys.size()) / dim;
  ASSERT_OK_AND_ASSIGN(const Solution batch, SolveCanonical(params, keys));
  CanonicalSolver solver(params);
  for (int64_t i = 0; i < n; ++i) {
    ASSERT_OK(solver.Append(Keys(keys, dim, i, 1)));
    if (i % 3 == 0 || i + 1 == n) {
      ASSERT_OK(solver.Solve());
    }
  }
  EXPECT_TRUE(SameBits(batch, solver.solution()));
  EXPECT_EQ(batch.smallest_margin, solver.solution().smallest_margin);
  // A path that proposes nothing, and one that proposes something wrong.
  GramCache gram(params.sigma, dim);
  gram.Append(keys);
  CholeskyFactor factor(params.ridge);
  Counters counters;
  EXPECT_TRUE(SameBits(batch, Canon(&gram, params, nullptr, &factor, &counters)));
  Start wrong;
  for (int64_t group = 0; group < gram.num_groups(); ++group) {
    wrong.classes.push_back(wrong_classes[static_cast<size_t>(gram.groups().FirstRank(group))]);
    wrong.a.push_back(0.0);
  }
  EXPECT_TRUE(SameBits(batch, Canon(&gram, params, &wrong, &factor, &counters)));
  EXPECT_EQ(counters.uncertified_gaps, 0);
  total->fallbacks += solver.counters().fallbacks;
  total->ambiguous += counters.ambiguous;
  total->solves += 1;
}

TEST(SvddCanonicalTest, NextToPartitionChangesAllPathsEndInTheSameBits) {
  std::mt19937_64 random(7);
  Counters total;
  for (const KeyKind kind : kAllKinds) {
    for (const double ridge : {1e-8, 0x1.0p-11}) {
      const int64_t dim = 2;
      const std::vector<double> keys = MakeKeys(kind, 24, dim, &random);
      // Bisect M to a change of the partition.
      double low = 3.3;
      double high = 9.7;
      const auto classes = [&](double box_mass) {
        return SolveCanonical(MakeParamsOrDie(1.2, box_mass, ridge, dim), keys).value().classes;
      };
      const std::vector<Partition> at_low = classes(low);
      if (classes(high) == at_low) continue;
      while (high - low > 1e-15 * low) {
        const double middle = 0.5 * (low + high);
        if (middle == low || middle == high) break;
        (classes(middle) == at_low ? low : high) = middle;
      }
      for (const double offset :
           {0.0, 1e-12, -1e-12, 1e-10, -1e-10, 3e-10, 1e-9, -1e-9, 2e-9, 1e-8, -1e-8, 1e-7, 1e-6}) {
        SCOPED_TRACE(KindName(kind) + std::string(" offset ") + std::to_string(offset * 1e12));
        const Params params = MakeParamsOrDie(1.2, low + offset, ridge, dim);
        ExpectOneResult(params, keys, at_low, &total);
      }
    }
  }
  EXPECT_GE(total.fallbacks, 50) << "the slow path was hardly taken";
  EXPECT_GE(total.ambiguous, 10);
  RecordProperty("problems", std::to_string(total.solves));
  RecordProperty("fallbacks", std::to_string(total.fallbacks));
  RecordProperty("ambiguous", std::to_string(total.ambiguous));
}

TEST(SvddCanonicalTest, SkippedPolishChangesBits) {
  std::mt19937_64 random(8);
  const Params params = MakeParamsOrDie(1.0, 30.5, 0x1.0p-11, 8);
  const std::vector<double> keys = MakeKeys(KeyKind::kUnitSphere, 192, 8, &random);
  const auto solve = [&](int64_t cut) {
    CanonicalSolver solver(params);
    for (int64_t begin = 0; begin < 192; begin += cut) {
      EXPECT_OK(solver.Append(Keys(keys, 8, begin, cut)));
      EXPECT_OK(solver.Solve());
    }
    return solver.solution();
  };
  EXPECT_TRUE(SameBits(solve(192), solve(32)));
  const lethe::testing::ScopedFault fault(Fault::kPolishSkipped);
  EXPECT_FALSE(SameBits(solve(192), solve(32)));
}

TEST(SvddCanonicalTest, ParametersAndKeysAreChecked) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(MakeParams(0.0, 2, 1e-3, 2), StatusIs(absl::StatusCode::kInvalidArgument, "sigma"));
  EXPECT_THAT(MakeParams(nan, 2, 1e-3, 2), StatusIs(absl::StatusCode::kInvalidArgument, "sigma"));
  EXPECT_THAT(MakeParams(1, 0.5, 1e-3, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, "box_mass"));
  EXPECT_THAT(MakeParams(1, 2, 0.0, 2), StatusIs(absl::StatusCode::kInvalidArgument, "ridge"));
  EXPECT_THAT(MakeParams(1, 2, 1e-3, 0), StatusIs(absl::StatusCode::kInvalidArgument, "key_dim"));
  EXPECT_EQ(MakeParams(1, 10.0 * (1 + 0x1.0p-52), 1e-3, 2)->box_mass, 10.0);
  CanonicalSolver solver(MakeParamsOrDie(1, 2, 1e-3, 2));
  EXPECT_THAT(solver.Append({1.0, nan}), StatusIs(absl::StatusCode::kInvalidArgument, "keys"));
  EXPECT_THAT(solver.Append({1.0, 0x1.0p401}),
              StatusIs(absl::StatusCode::kInvalidArgument, "keys"));
  EXPECT_THAT(solver.Append({1.0}), StatusIs(absl::StatusCode::kInvalidArgument, "keys"));
  EXPECT_EQ(solver.num_keys(), 0);
}

}  // namespace
}  // namespace lethe::svdd
