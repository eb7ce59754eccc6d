// Goal: long lists loaded at once end in the canonical solution by the quick way, whose memory does not
// grow with the error set.
// Method: lists with more error keys than a working set takes, against the KKT conditions and the same
// lists fed in parts and one by one at the end; counters; WeightedRowSum with and without kept rows.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "memory/svdd/canonical.h"
#include "memory/svdd/incremental.h"
#include "memory/svdd/propose.h"
#include "memory/svdd/sampled_start.h"
#include "memory/svdd/weighted_row_sum.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

constexpr int64_t kDim = 6;

absl::Span<const double> First(const std::vector<double>& keys, int64_t count) {
  return absl::MakeConstSpan(keys).first(static_cast<size_t>(count * kDim));
}

TEST(SvddBulkTest, LongListsEndInTheOneSolution) {
  std::mt19937_64 random(1);
  for (const KeyKind kind : {KeyKind::kGaussian, KeyKind::kClusters, KeyKind::kNearDuplicates8,
                             KeyKind::kGrid, KeyKind::kFewKeys}) {
    for (const double box_mass : {700.0, 640.3}) {
      SCOPED_TRACE(KindName(kind) + std::string(" M ") + std::to_string(box_mass));
      const int64_t n = 1600;
      const Params params = MakeParamsOrDie(2.5, box_mass, 0x1.0p-11, kDim);
      const std::vector<double> keys = MakeKeys(kind, n, kDim, &random);
      CanonicalSolver whole(params);
      ASSERT_OK(whole.Append(keys));
      ASSERT_OK(whole.Solve());
      EXPECT_LE(KktViolation(params, keys, whole.solution()), 1e-11);
      EXPECT_EQ(whole.counters().pivot_failures, 0);
      EXPECT_EQ(whole.counters().fallbacks, 0);
      CanonicalSolver parts(params);
      ASSERT_OK(parts.Append(First(keys, 1100)));
      ASSERT_OK(parts.Solve());
      ASSERT_OK(parts.Append(absl::MakeConstSpan(keys).subspan(1100 * kDim)));
      ASSERT_OK(parts.Solve());
      EXPECT_TRUE(SameBits(whole.solution(), parts.solution()));
      EXPECT_EQ(whole.solution().smallest_margin, parts.solution().smallest_margin);
      IncrementalSolver single(params);
      ASSERT_OK(single.AddSeveral(First(keys, n - 3)));
      for (int64_t i = n - 3; i < n; ++i) {
        ASSERT_OK(
            single.Add(absl::MakeConstSpan(keys).subspan(static_cast<size_t>(i * kDim), kDim)));
      }
      EXPECT_TRUE(SameBits(whole.solution(), single.solution()));
      EXPECT_EQ(single.counters().fallbacks, 0);
    }
  }
}

TEST(SvddBulkTest, MemoryDoesNotGrowWithTheErrorSet) {
  std::mt19937_64 random(2);
  const int64_t n = 6000;
  const std::vector<double> keys = MakeKeys(KeyKind::kGaussian, n, kDim, &random);
  for (const double box_mass : {900.0, 2400.0}) {
    IncrementalSolver solver(MakeParamsOrDie(2.5, box_mass, 0x1.0p-11, kDim));
    ASSERT_OK(solver.AddSeveral(keys));
    const std::vector<Partition>& classes = solver.solution().classes;
    const auto errors = std::count(classes.begin(), classes.end(), Partition::kError);
    EXPECT_GT(errors, static_cast<int64_t>(kWholeError));
    // All their rows would be 43 and 115 MB.
    EXPECT_LT(solver.state_bytes(), size_t{32} << 20) << "M " << box_mass;
  }
}

TEST(SvddBulkTest, StartFromASampleIsFeasibleAndNearlyRight) {
  std::mt19937_64 random(3);
  const int64_t n = 4000;
  const double box_mass = 400.5;
  for (const KeyKind kind : {KeyKind::kGaussian, KeyKind::kDuplicates}) {
    const Params params = MakeParamsOrDie(2.5, box_mass, 0x1.0p-11, kDim);
    const std::vector<double> keys = MakeKeys(kind, n, kDim, &random);
    GramCache gram(params.sigma, kDim);
    gram.Append(keys);
    const Start start = SampledStart(&gram, box_mass, params.ridge);
    double total = 0.0;
    double wrong = 0.0;
    ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, keys));
    for (size_t i = 0; i < start.a.size(); ++i) {
      const double weight = gram.weights()[i];
      const auto rank = static_cast<size_t>(gram.groups().FirstRank(static_cast<int64_t>(i)));
      ASSERT_TRUE(start.a[i] >= 0.0 && start.a[i] <= 1.0);
      total += weight * start.a[i];
      wrong += weight * std::abs(start.a[i] - solution.a[rank]);
    }
    EXPECT_NEAR(total, box_mass, 1e-9) << KindName(kind);
    // The first keys would be wrong by nearly 2 M. A sample of keys with copies is coarse.
    EXPECT_LT(wrong, 0.75 * box_mass) << KindName(kind);
  }
}

TEST(SvddBulkTest, KeptRowsDoNotChangeTheBitsOfASum) {
  std::mt19937_64 random(4);
  const std::vector<double> keys = MakeKeys(KeyKind::kGaussian, 1301, kDim, &random);
  std::vector<int64_t> indices;
  std::vector<double> factors;
  for (int64_t i = 0; i < 1301; i += 17) {
    indices.push_back(i);
    factors.push_back(static_cast<double>(random() % 1000) / 999.0);
  }
  GramCache kept(1.1, kDim);
  kept.Append(keys);
  GramCache passed(1.1, kDim);
  passed.Append(keys);
  std::vector<double> with_rows;
  std::vector<double> without;
  WeightedRowSum(&kept, indices, factors, &with_rows);
  WeightedRowSum(&passed, indices, factors, &without, 0);
  EXPECT_EQ(with_rows, without);
  EXPECT_TRUE(kept.HasRow(17));
  EXPECT_FALSE(passed.HasRow(17));
  for (size_t k = 0; k < indices.size(); k += 2) passed.Row(indices[k]);
  WeightedRowSum(&passed, indices, factors, &without, 0);
  EXPECT_EQ(with_rows, without);
}

}  // namespace
}  // namespace lethe::svdd
