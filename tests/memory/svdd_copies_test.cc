// Goal: keys held as one key with a multiplicity have the optimum of the problem with all copies
// written out, the same a on every copy, and the same bits on every path.
// Method: lists with 0 to 95 % copies against the plain reference, which merges nothing; appends in
// every cut, truncation back through copies, copied solvers, single additions and removals; M next
// to changes of the partition; lists of one key, where the solution has a closed form.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "memory/svdd/canonical.h"
#include "memory/svdd/incremental.h"
#include "memory/svdd/polish.h"
#include "memory/svdd/svdd_ref.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

absl::Span<const double> Keys(const std::vector<double>& keys, int64_t dim, int64_t begin,
                              int64_t count) {
  return absl::MakeConstSpan(keys).subspan(static_cast<size_t>(begin * dim),
                                           static_cast<size_t>(count * dim));
}

// n keys, of which about `percent` in a hundred are copies of one of the first few.
std::vector<double> WithCopies(int64_t n, int64_t dim, uint64_t percent, std::mt19937_64* random) {
  std::vector<double> keys = MakeKeys(KeyKind::kGaussian, n, dim, random);
  for (int64_t i = 1; i < n; ++i) {
    if ((*random)() % 100 >= percent) continue;
    const auto from =
        static_cast<int64_t>((*random)() % static_cast<uint64_t>(std::min<int64_t>(i, 4)));
    std::copy_n(keys.begin() + from * dim, dim, keys.begin() + i * dim);
  }
  return keys;
}

// Copies have one class and the same bits of a.
void ExpectEqualOnCopies(const std::vector<double>& keys, int64_t dim, const Solution& solution) {
  for (int64_t i = 0; i < solution.num_keys; ++i) {
    for (int64_t j = 0; j < i; ++j) {
      if (Keys(keys, dim, i, 1) != Keys(keys, dim, j, 1)) continue;
      ASSERT_EQ(solution.a[static_cast<size_t>(i)], solution.a[static_cast<size_t>(j)]);
      ASSERT_EQ(solution.classes[static_cast<size_t>(i)], solution.classes[static_cast<size_t>(j)]);
      break;
    }
  }
}

TEST(SvddCopiesTest, SolutionIsTheUnmergedOptimum) {
  std::mt19937_64 random(1);
  int64_t compared = 0;
  for (const uint64_t percent : {0u, 30u, 60u, 90u, 95u}) {
    for (int trial = 0; trial < 24; ++trial) {
      SCOPED_TRACE(std::to_string(percent) + " % copies, trial " + std::to_string(trial));
      const int64_t dim = 1 + trial % 4;
      const int64_t n = 5 + static_cast<int64_t>(random() % 60);
      const double box_mass = trial % 2 ? 1.0 + static_cast<double>(random() % 30)
                                        : 1.0 + static_cast<double>(random() % 300) / 11.0;
      const double ridge = trial % 3 == 0 ? 1e-6 : 0x1.0p-11;
      const Params params = MakeParamsOrDie(trial % 4 == 0 ? 0.4 : 1.3, box_mass, ridge, dim);
      const std::vector<double> keys = WithCopies(n, dim, percent, &random);
      ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, keys));
      ExpectEqualOnCopies(keys, dim, solution);
      if (HasFatalFailure()) return;
      EXPECT_LE(KktViolation(params, keys, solution), solution.ambiguous ? 1e-6 : 1e-13);
      const RefSolution ref = SolveRef(params, keys);
      ASSERT_TRUE(ref.converged);
      EXPECT_NEAR(static_cast<double>(ref.rho), solution.rho, 1e-13);
      for (size_t i = 0; i < ref.a.size(); ++i) {
        const auto exact = static_cast<double>(ref.a[i]);
        EXPECT_NEAR(exact, solution.a[i], 1e-13 / ridge) << i;
        if (solution.ambiguous || solution.smallest_margin < 1e-6) continue;
        const Partition place = exact < 1e-7       ? Partition::kReserve
                                : exact > 1 - 1e-7 ? Partition::kError
                                                   : Partition::kMargin;
        EXPECT_EQ(place, solution.classes[i]) << i;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 3000);
}

TEST(SvddCopiesTest, EveryPathEndsInTheSameBits) {
  std::mt19937_64 random(2);
  for (const uint64_t percent : {30u, 70u, 95u}) {
    for (const double box_mass : {20.0, 33.3, 64.0, 65.0}) {
      SCOPED_TRACE(std::to_string(percent) + " % copies, M " + std::to_string(box_mass));
      const int64_t dim = 3;
      const int64_t n = 200;
      const Params params = MakeParamsOrDie(1.1, box_mass, 0x1.0p-11, dim);
      const std::vector<double> keys = WithCopies(n, dim, percent, &random);
      ASSERT_OK_AND_ASSIGN(const Solution whole, SolveCanonical(params, keys));
      for (const int64_t cut : {1, 13, 64}) {
        CanonicalSolver solver(params);
        std::vector<Solution> seen = {solver.solution()};
        for (int64_t begin = 0; begin < n; begin += cut) {
          ASSERT_OK(solver.Append(Keys(keys, dim, begin, std::min(cut, n - begin))));
          ASSERT_OK(solver.Solve());
          seen.push_back(solver.solution());
        }
        EXPECT_TRUE(SameBits(whole, solver.solution())) << "cut " << cut;
        EXPECT_EQ(whole.smallest_margin, solver.solution().smallest_margin) << "cut " << cut;
        // Back through the copies to every boundary, and forth again from there and from a copy.
        for (size_t k = seen.size(); k-- > 0;) {
          if (cut == 1 && k % 17 != 0) continue;
          const Solution& before = seen[k];
          solver.Truncate(before.num_keys, before);
          CanonicalSolver copy(solver);
          ASSERT_OK(copy.Append(Keys(keys, dim, before.num_keys, n - before.num_keys)));
          ASSERT_OK(copy.Solve());
          EXPECT_TRUE(SameBits(whole, copy.solution())) << "from " << before.num_keys;
          const int64_t other = std::min<int64_t>(before.num_keys + 40, n);
          ASSERT_OK(solver.Append(Keys(keys, dim, n - other, other - before.num_keys)));
          ASSERT_OK(solver.Solve());
          ASSERT_OK_AND_ASSIGN(const Solution fresh, SolveCanonical(params, solver.keys()));
          EXPECT_TRUE(SameBits(fresh, solver.solution())) << "from " << before.num_keys;
          solver.Truncate(before.num_keys, before);
        }
      }
    }
  }
}

TEST(SvddCopiesTest, SignOfZeroMakesNoOtherKey) {
  const Params params = MakeParamsOrDie(1.0, 3.0, 0x1.0p-11, 2);
  const std::vector<double> plus = {0.0, 1.0, 0.5, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0};
  std::vector<double> mixed = plus;
  for (const size_t i : {4u, 3u, 10u}) mixed[i] = -mixed[i];
  ASSERT_TRUE(std::signbit(mixed[3]));
  CanonicalSolver solver(params);
  ASSERT_OK(solver.Append(mixed));
  ASSERT_OK(solver.Solve());
  EXPECT_EQ(solver.key_groups().num_groups(), 3);
  ASSERT_OK_AND_ASSIGN(const Solution expected, SolveCanonical(params, plus));
  EXPECT_TRUE(SameBits(expected, solver.solution()));
}

TEST(SvddCopiesTest, OneKeyHasTheClosedForm) {
  const double ridge = 0x1.0p-11;
  for (const double box_mass : {1.0, 7.0, 10.3, 64.0}) {
    const Params params = MakeParamsOrDie(1.0, box_mass, ridge, 2);
    CanonicalSolver solver(params);
    IncrementalSolver single(params);
    for (int64_t n = 1; n <= 300; ++n) {
      ASSERT_OK(solver.Append({0.25, -3.0}));
      ASSERT_OK(solver.Solve());
      const double m = std::min(box_mass, static_cast<double>(n));
      const double a = RoundToGrid(DoubleDouble(m) / static_cast<double>(n));
      EXPECT_EQ(solver.solution().a, std::vector<double>(static_cast<size_t>(n), a)) << n;
      // lambda = 2(m + ridge a).
      EXPECT_NEAR(solver.solution().rho, 1.0 - 2.0 * (1.0 + ridge * a / m), 0x1.0p-52) << n;
      if (n > 80) continue;
      ASSERT_OK(single.Add({0.25, -3.0}));
      EXPECT_TRUE(SameBits(solver.solution(), single.solution())) << n;
    }
    EXPECT_EQ(solver.key_groups().num_groups(), 1);
    EXPECT_LE(solver.counters().kernel_values, 300) << "copies cost kernel values";
    EXPECT_EQ(solver.counters().fallbacks, 0);
    while (single.num_keys() > 1) {
      ASSERT_OK(single.Remove(single.num_keys() / 2));
      ASSERT_OK_AND_ASSIGN(const Solution fresh, SolveCanonical(params, single.keys()));
      ASSERT_TRUE(SameBits(fresh, single.solution())) << single.num_keys();
    }
  }
}

TEST(SvddCopiesTest, MoreCopiesMoveAKeyThroughAllClasses) {
  // Key 1 stands alone; of key 0 there are more and more copies beside a third key.
  const Params params = MakeParamsOrDie(1.0, 5.0, 0x1.0p-11, 1);
  std::vector<double> keys = {0.0, 2.5, 0.3, 0.9, -0.4, 1.4};
  bool was_error = false;
  bool was_margin = false;
  for (int copies = 0; copies < 40; ++copies) {
    ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, keys));
    const RefSolution ref = SolveRef(params, keys);
    ASSERT_TRUE(ref.converged);
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(ref.a[i]), solution.a[i], 1e-10) << copies << " " << i;
    }
    ExpectEqualOnCopies(keys, 1, solution);
    if (HasFatalFailure()) return;
    was_error |= solution.classes[0] == Partition::kError;
    was_margin |= solution.classes[0] == Partition::kMargin && copies > 3;
    keys.push_back(0.0);
  }
  EXPECT_TRUE(was_error);
  EXPECT_TRUE(was_margin);
}

TEST(SvddCopiesTest, EmptyMarginCountsCopies) {
  // A wide kernel and an integer M: often only whole keys, all copies of them, are used.
  std::mt19937_64 random(3);
  int64_t empty = 0;
  for (int trial = 0; trial < 400 && empty < 12; ++trial) {
    const Params params = MakeParamsOrDie(4.0, 4.0 + trial % 4, 0x1.0p-11, 1);
    std::vector<double> keys = MakeKeys(KeyKind::kGaussian, 7, 1, &random);
    for (int copy = 0; copy < 5; ++copy) keys.push_back(keys[random() % 4]);
    ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, keys));
    EXPECT_LE(KktViolation(params, keys, solution), 1e-13);
    if (std::count(solution.classes.begin(), solution.classes.end(), Partition::kMargin) > 0) {
      continue;
    }
    ++empty;
    EXPECT_EQ(static_cast<double>(
                  std::count(solution.classes.begin(), solution.classes.end(), Partition::kError)),
              solution.mass);
    const RefSolution ref = SolveRef(params, keys);
    EXPECT_NEAR(static_cast<double>(ref.rho), solution.rho, 1e-14);
    IncrementalSolver single(params);
    for (const double& key : keys) ASSERT_OK(single.Add(absl::MakeConstSpan(&key, 1)));
    EXPECT_TRUE(SameBits(solution, single.solution()));
  }
  EXPECT_EQ(empty, 12);
}

TEST(SvddCopiesTest, RemovingAnyCopyEqualsRetraining) {
  std::mt19937_64 random(4);
  Counters total;
  for (const double box_mass : {6.0, 9.7, 14.0}) {
    for (const uint64_t percent : {50u, 85u}) {
      SCOPED_TRACE(std::to_string(percent) + " % copies, M " + std::to_string(box_mass));
      const int64_t dim = 2;
      const Params params = MakeParamsOrDie(1.2, box_mass, 0x1.0p-11, dim);
      const std::vector<double> keys = WithCopies(40, dim, percent, &random);
      IncrementalSolver filled(params);
      for (int64_t i = 0; i < 40; ++i) ASSERT_OK(filled.Add(Keys(keys, dim, i, 1)));
      for (int64_t rank = 0; rank < 40; ++rank) {
        IncrementalSolver solver = filled;
        ASSERT_OK(solver.Remove(rank));
        ASSERT_OK_AND_ASSIGN(const Solution fresh,
                             SolveCanonical(params, WithoutKeys(keys, dim, {rank})));
        ASSERT_TRUE(SameBits(fresh, solver.solution())) << "rank " << rank;
        // Back at another rank, then down through M.
        ASSERT_OK(solver.Add(Keys(keys, dim, rank, 1)));
        while (rank % 8 == 0 && solver.num_keys() > 3) {
          const auto first = static_cast<int64_t>(random() % 3);
          ASSERT_OK(solver.RemoveSeveral({first, solver.num_keys() - 1}));
          ASSERT_OK_AND_ASSIGN(const Solution left, SolveCanonical(params, solver.keys()));
          ASSERT_TRUE(SameBits(left, solver.solution())) << solver.num_keys();
        }
        total.solves += solver.counters().solves;
        total.accepted += solver.counters().accepted;
      }
    }
  }
  EXPECT_GE(static_cast<double>(total.accepted), 0.99 * static_cast<double>(total.solves))
      << total.accepted << " of " << total.solves << ": the homotopy does not find the optimum";
}

TEST(SvddCopiesTest, NextToPartitionChangesAllPathsEndInTheSameBits) {
  std::mt19937_64 random(5);
  int64_t fallbacks = 0;
  for (int trial = 0; trial < 12; ++trial) {
    const int64_t dim = 2;
    const double ridge = trial % 2 ? 1e-8 : 0x1.0p-11;
    const std::vector<double> keys = WithCopies(40, dim, 75, &random);
    double low = 3.3;
    double high = 17.7;
    const auto classes = [&](double box_mass) {
      return SolveCanonical(MakeParamsOrDie(1.2, box_mass, ridge, dim), keys).value().classes;
    };
    const std::vector<Partition> at_low = classes(low);
    while (high - low > 1e-15 * low) {
      const double middle = 0.5 * (low + high);
      if (middle == low || middle == high) break;
      (classes(middle) == at_low ? low : high) = middle;
    }
    for (const double offset : {0.0, 1e-12, -1e-11, 1e-10, 3e-10, -1e-9, 2e-9, 1e-8, 1e-7}) {
      const Params params = MakeParamsOrDie(1.2, low + offset, ridge, dim);
      ASSERT_OK_AND_ASSIGN(const Solution batch, SolveCanonical(params, keys));
      CanonicalSolver cut(params);
      IncrementalSolver single(params);
      for (int64_t i = 0; i < 40; ++i) {
        ASSERT_OK(cut.Append(Keys(keys, dim, i, 1)));
        ASSERT_OK(cut.Solve());
        ASSERT_OK(single.Add(Keys(keys, dim, i, 1)));
      }
      EXPECT_TRUE(SameBits(batch, cut.solution())) << trial << " offset " << offset;
      EXPECT_TRUE(SameBits(batch, single.solution())) << trial << " offset " << offset;
      EXPECT_EQ(cut.counters().uncertified_gaps, 0);
      fallbacks += cut.counters().fallbacks;
    }
  }
  EXPECT_GE(fallbacks, 20) << "the slow path was hardly taken";
}

}  // namespace
}  // namespace lethe::svdd
