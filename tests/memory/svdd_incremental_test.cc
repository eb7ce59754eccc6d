// Goal: learning and unlearning keys by the homotopy ends, bit for bit, in the solution of the keys
// that remain; and the homotopy itself, not the fallback, finds it.
// Method: random sequences of Add, Remove and RemoveSeveral over key sets of every kind, M integer
// and not, with n crossing M both ways, each compared with a cold batch solve; the paper's own
// examples.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "memory/svdd/incremental.h"
#include "memory/svdd/svdd_ref.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

using ::lethe::testing::StatusIs;

void ExpectRetrained(const Params& params, IncrementalSolver* solver) {
  ASSERT_OK_AND_ASSIGN(const Solution retrained, SolveCanonical(params, solver->keys()));
  ASSERT_TRUE(SameBits(retrained, solver->solution())) << "n " << solver->num_keys();
  // Another bound on the same margins, from other sums and maybe of a key that left.
  ASSERT_LE(solver->solution().smallest_margin, (1.0 + 1e-6) * retrained.smallest_margin + 1e-9);
}

TEST(SvddIncrementalTest, EveryOperationEqualsRetraining) {
  std::mt19937_64 random(1);
  for (const KeyKind kind : kAllKinds) {
    for (const double box_mass : {5.0, 6.3, 12.0}) {
      for (const double ridge : {1e-8, 0x1.0p-11}) {
        SCOPED_TRACE(KindName(kind) + std::string(" M ") + std::to_string(box_mass));
        const int64_t dim = 3;
        const Params params = MakeParamsOrDie(1.4, box_mass, ridge, dim);
        const std::vector<double> pool = MakeKeys(kind, 64, dim, &random);
        IncrementalSolver solver(params);
        int64_t next = 0;
        for (int operation = 0; operation < 60; ++operation) {
          const int64_t n = solver.num_keys();
          const bool add = n < 3 || (n < 30 && random() % 5 < 3 && next < 64);
          if (add && next < 64) {
            ASSERT_OK(solver.Add(absl::MakeConstSpan(pool).subspan(
                static_cast<size_t>(next++ * dim), static_cast<size_t>(dim))));
          } else {
            const int64_t count = random() % 3 == 0 ? 1 + static_cast<int64_t>(random() % 4) : 1;
            ASSERT_OK(solver.RemoveSeveral(RandomRanks(std::min(count, n), n, &random)));
          }
          if (operation % 3 == 0 || solver.num_keys() < 14) {
            ExpectRetrained(params, &solver);
            if (HasFatalFailure()) return;
          }
        }
        EXPECT_EQ(solver.counters().uncertified_gaps, 0);
      }
    }
  }
}

TEST(SvddIncrementalTest, TheMarginThatIsStatedRemembersNoKeyThatLeft) {
  std::mt19937_64 random(9);
  const int64_t dim = 3;
  const Params params = MakeParamsOrDie(1.4, 12.5, 0x1.0p-11, dim);
  IncrementalSolver never(params);
  ASSERT_OK(never.AddSeveral(MakeKeys(KeyKind::kGaussian, 60, dim, &random)));
  IncrementalSolver once = never;
  int64_t joined = 0;
  for (int trial = 0; trial < 200; ++trial) {
    ASSERT_OK(once.Add(MakeKeys(KeyKind::kGaussian, 1, dim, &random)));
    joined += once.solution().classes.back() == Partition::kReserve ? 1 : 0;
    ASSERT_OK(once.Remove(once.num_keys() - 1));
    ASSERT_TRUE(SameBits(once.solution(), never.solution()));
    ASSERT_EQ(once.solution().smallest_margin, never.solution().smallest_margin) << trial;
  }
  EXPECT_GE(joined, 20);
}

TEST(SvddIncrementalTest, ManySupportKeysLeaveAtOnce) {
  std::mt19937_64 random(6);
  int64_t accepted = 0;
  int64_t removals = 0;
  int64_t by_proposal = 0;
  for (const KeyKind kind : kAllKinds) {
    for (const double box_mass : {20.0, 30.7}) {
      SCOPED_TRACE(KindName(kind) + std::string(" M ") + std::to_string(box_mass));
      const int64_t dim = 3;
      const Params params = MakeParamsOrDie(0.8, box_mass, 0x1.0p-11, dim);
      IncrementalSolver solver(params);
      std::vector<double> expected = MakeKeys(kind, 160, dim, &random);
      ASSERT_OK(solver.AddSeveral(expected));
      while (solver.num_keys() > 60) {
        const int64_t before = solver.counters().accepted;
        const int64_t events = solver.num_events();
        const std::vector<int64_t> ranks = RandomRanks(30, solver.num_keys(), &random);
        int64_t num_support = 0;
        for (const int64_t rank : ranks) {
          const auto place = solver.solution().classes[static_cast<size_t>(rank)];
          num_support += place == Partition::kReserve ? 0 : 1;
        }
        ASSERT_OK(solver.RemoveSeveral(ranks));
        accepted += solver.counters().accepted - before;
        ++removals;
        by_proposal += num_support > 8 && solver.num_events() == events ? 1 : 0;
        expected = WithoutKeys(expected, dim, ranks);
        ASSERT_EQ(solver.keys(), expected);
        ExpectRetrained(params, &solver);
        if (HasFatalFailure()) return;
        // What the removal left behind serves the next operations.
        const std::vector<double> key = MakeKeys(kind, 1, dim, &random);
        ASSERT_OK(solver.Add(key));
        expected = solver.keys();
        const auto rank = static_cast<int64_t>(random() % 20);
        ASSERT_OK(solver.Remove(rank));
        expected = WithoutKeys(expected, dim, {rank});
        ASSERT_EQ(solver.keys(), expected);
        ExpectRetrained(params, &solver);
        if (HasFatalFailure()) return;
      }
    }
  }
  // The fallback would hide a proposal that is always wrong.
  EXPECT_GE(accepted, removals * 3 / 4) << removals;
  EXPECT_GE(by_proposal, removals / 4) << removals;
}

TEST(SvddIncrementalTest, HomotopyItselfFindsTheOptimum) {
  std::mt19937_64 random(2);
  Counters total;
  int64_t events = 0;
  for (int trial = 0; trial < 30; ++trial) {
    const int64_t dim = 4;
    const Params params =
        MakeParamsOrDie(1.5, trial % 2 ? 8.0 : 7.6, trial % 3 ? 0x1.0p-11 : 1e-6, dim);
    const KeyKind kind = trial % 5 == 0 ? KeyKind::kDuplicates : KeyKind::kGaussian;
    const std::vector<double> pool = MakeKeys(kind, 40, dim, &random);
    IncrementalSolver solver(params);
    for (int64_t i = 0; i < 40; ++i) {
      ASSERT_OK(solver.Add(absl::MakeConstSpan(pool).subspan(static_cast<size_t>(i * dim), 4)));
    }
    while (solver.num_keys() > 4) {
      const int64_t n = solver.num_keys();
      ASSERT_OK(solver.RemoveSeveral(RandomRanks(std::min<int64_t>(n, 1 + n % 3), n, &random)));
    }
    total.solves += solver.counters().solves;
    total.accepted += solver.counters().accepted;
    events += solver.num_events();
  }
  EXPECT_GE(total.solves, 1200);
  EXPECT_GE(static_cast<double>(total.accepted), 0.999 * static_cast<double>(total.solves))
      << total.accepted << " of " << total.solves;
  EXPECT_GT(events, total.solves);
}

TEST(SvddIncrementalTest, RemovalFromAnEmptyMarginStateIsSolved) {
  // One-dimensional keys, sigma 4, C = 1/2 and 1/4: where the authors' solver stops with
  // "margin_empty".
  std::mt19937_64 random(3);
  int64_t started_empty = 0;
  for (int trial = 0; trial < 200 && started_empty < 50; ++trial) {
    const Params params = MakeParamsOrDie(4.0, trial % 2 ? 2.0 : 4.0, 0x1.0p-11, 1);
    const std::vector<double> keys = MakeKeys(KeyKind::kGaussian, 6 + trial % 4, 1, &random);
    IncrementalSolver solver(params);
    for (const double& key : keys) ASSERT_OK(solver.Add(absl::MakeConstSpan(&key, 1)));
    const std::vector<Partition>& classes = solver.solution().classes;
    if (std::count(classes.begin(), classes.end(), Partition::kMargin) > 0) continue;
    ++started_empty;
    const auto error = std::find(classes.begin(), classes.end(), Partition::kError);
    ASSERT_OK(solver.Remove(error - classes.begin()));
    ExpectRetrained(params, &solver);
    EXPECT_LE(KktViolation(params, solver.keys(), solver.solution()), 1e-14);
  }
  EXPECT_EQ(started_empty, 50);
}

TEST(SvddIncrementalTest, CrossesTheMassBothWays) {
  std::mt19937_64 random(4);
  for (const double box_mass : {4.0, 4.5}) {
    const Params params = MakeParamsOrDie(1.0, box_mass, 0x1.0p-11, 2);
    const std::vector<double> keys = MakeKeys(KeyKind::kUnitSphere, 8, 2, &random);
    IncrementalSolver solver(params);
    for (int round = 0; round < 3; ++round) {
      for (int64_t i = solver.num_keys(); i < 8; ++i) {
        ASSERT_OK(solver.Add(absl::MakeConstSpan(keys).subspan(static_cast<size_t>(2 * i), 2)));
        ExpectRetrained(params, &solver);
      }
      while (solver.num_keys() > 2) {
        ASSERT_OK(solver.Remove(solver.num_keys() / 2));
        ExpectRetrained(params, &solver);
        if (static_cast<double>(solver.num_keys()) <= box_mass) {
          EXPECT_EQ(solver.solution().a,
                    std::vector<double>(static_cast<size_t>(solver.num_keys()), 1.0));
        }
      }
      ASSERT_OK(solver.RemoveSeveral({0, 1}));
      EXPECT_EQ(solver.num_keys(), 0);
    }
  }
}

TEST(SvddIncrementalTest, BelowTheMassRhoIsThatOfAFreshSolveWheneverItIsAskedFor) {
  std::mt19937_64 random(8);
  const int64_t dim = 3;
  const Params params = MakeParamsOrDie(1.2, 60.0, 0x1.0p-11, dim);
  IncrementalSolver solver(params);
  for (int operation = 0; operation < 80; ++operation) {
    const int64_t n = solver.num_keys();
    if (n < 10 || random() % 3 != 0) {
      ASSERT_OK(solver.AddSeveral(
          MakeKeys(KeyKind::kDuplicates, 1 + static_cast<int64_t>(random() % 3), dim, &random)));
    } else {
      ASSERT_OK(solver.RemoveSeveral(RandomRanks(2, n, &random)));
    }
    if (random() % 2 == 0) ExpectRetrained(params, &solver);
    if (HasFatalFailure()) return;
  }
}

TEST(SvddIncrementalTest, BadRanksAndKeysChangeNothing) {
  const Params params = MakeParamsOrDie(1.0, 2.0, 0x1.0p-11, 1);
  IncrementalSolver solver(params);
  ASSERT_OK(solver.Add({0.5}));
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(solver.Remove(1), StatusIs(invalid, "ranks"));
  EXPECT_THAT(solver.Remove(-1), StatusIs(invalid, "ranks"));
  EXPECT_THAT(solver.RemoveSeveral({0, 0}), StatusIs(invalid, "ranks"));
  EXPECT_THAT(solver.Add({0.5, 0.5}), StatusIs(invalid, "key"));
  EXPECT_THAT(solver.Add({std::nan("")}), StatusIs(invalid, "key"));
  EXPECT_EQ(solver.num_keys(), 1);
}

// The score of the paper's tables, f(x) = 2 sum alpha kappa(x, x_i) - rho.
double PaperScore(const RefSolution& solution, const Params& params,
                  const std::vector<double>& keys, double x, double y) {
  double score = -static_cast<double>(solution.rho);
  for (size_t i = 0; i < solution.a.size(); ++i) {
    const double dx = keys[2 * i] - x;
    const double dy = keys[2 * i + 1] - y;
    score += 2.0 * static_cast<double>(solution.a[i]) / solution.mass *
             std::exp(-(dx * dx + dy * dy) / (params.sigma * params.sigma));
  }
  return score;
}

TEST(SvddIncrementalTest, ReserveCertificateExpiresWhenAKeyIsAdmitted) {
  // SV-Attention (arXiv 2607.12204), counterexample to reserve dropping: keys (-1,0), (1,0),
  // (0,.9), C = 1, sigma = 5, no ridge.
  const Params params{5.0, 1.0, 0.0, 2};
  const std::vector<double> full = {-1, 0, 1, 0, 0, 0.9};
  const std::vector<double> pruned = {-1, 0, 1, 0};
  const RefSolution before_full = SolveRef(params, full);
  const RefSolution before_pruned = SolveRef(params, pruned);
  ASSERT_TRUE(before_full.converged && before_pruned.converged);
  EXPECT_EQ(before_full.a[2], 0.0L) << "the third key is in reserve";
  EXPECT_NEAR(static_cast<double>(before_full.a[0] - before_pruned.a[0]), 0.0, 1e-15);
  // Then (0,-10) arrives: the reserve key would have been needed.
  std::vector<double> full_later = full;
  full_later.insert(full_later.end(), {0, -10});
  std::vector<double> pruned_later = pruned;
  pruned_later.insert(pruned_later.end(), {0, -10});
  const RefSolution after_full = SolveRef(params, full_later);
  const RefSolution after_pruned = SolveRef(params, pruned_later);
  EXPECT_NEAR(static_cast<double>(after_full.a[2]), 0.03327001, 5e-9);
  double largest = 0.0;
  for (size_t i = 0; i < 4; ++i) {
    const double x = full_later[2 * i];
    const double y = full_later[2 * i + 1];
    largest = std::max(largest, std::abs(PaperScore(after_full, params, full_later, x, y) -
                                         PaperScore(after_pruned, params, pruned_later, x, y)));
  }
  EXPECT_NEAR(largest, 4.07857e-3, 1e-7);
}

TEST(SvddIncrementalTest, DroppingAReserveKeyKeepsTheSolution) {
  std::mt19937_64 random(5);
  const Params params = MakeParamsOrDie(1.2, 5.5, 0x1.0p-11, 2);
  const std::vector<double> keys = MakeKeys(KeyKind::kGaussian, 40, 2, &random);
  IncrementalSolver solver(params);
  for (size_t i = 0; i < 40; ++i)
    ASSERT_OK(solver.Add(absl::MakeConstSpan(keys).subspan(2 * i, 2)));
  const Solution before = solver.solution();
  const auto reserve = std::find(before.classes.begin(), before.classes.end(), Partition::kReserve);
  ASSERT_NE(reserve, before.classes.end());
  const int64_t events = solver.num_events();
  ASSERT_OK(solver.Remove(reserve - before.classes.begin()));
  EXPECT_EQ(solver.num_events(), events) << "a reserve key leaves without a step";
  EXPECT_EQ(solver.solution().rho, before.rho);
  std::vector<double> expected = before.a;
  expected.erase(expected.begin() + (reserve - before.classes.begin()));
  EXPECT_EQ(solver.solution().a, expected);
}

}  // namespace
}  // namespace lethe::svdd
