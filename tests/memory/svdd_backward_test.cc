// Goal: the gradients through the support-vector solution are those of the solution itself, for every
// key by itself (copies of one key included), sigma and the ridge, and of the decision function.
// Method: central differences of SolveCanonical, eps 1e-6, atol 1e-4, rtol 1e-3 (PyTorch's gradcheck),
// where both moved problems have the partition of the one in the middle; entries of the Gram matrix by
// the plain active set; the factor reused in every state a solver can be in.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "gtest/gtest.h"

#include "kernels/gram/gram.h"
#include "memory/svdd/active_set_ref.h"
#include "memory/svdd/backward.h"
#include "memory/svdd/canonical.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

constexpr double kEps = 1e-6;
constexpr int64_t kDim = 3;

bool Near(double got, double want) { return std::abs(got - want) <= 1e-4 + 1e-3 * std::abs(want); }

struct Problem {
  Params params;
  std::vector<double> keys;
  SolutionAdjoint adjoint;
};

Problem MakeProblem(KeyKind kind, int64_t n, double box_mass, double ridge,
                    std::mt19937_64* random) {
  std::normal_distribution<double> normal;
  Problem problem{MakeParamsOrDie(1.1, box_mass, ridge, kDim), MakeKeys(kind, n, kDim, random), {}};
  problem.adjoint.rho = normal(*random);
  for (int64_t i = 0; i < n; ++i) problem.adjoint.a.push_back(normal(*random));
  return problem;
}

SolutionGradient Backward(const Problem& problem) {
  CanonicalSolver solver(problem.params);
  EXPECT_OK(solver.Append(problem.keys));
  EXPECT_OK(solver.Solve());
  return solver.Backward(problem.adjoint);
}

// rho' rho + a'.a + g(solution) of a moved problem; false where its partition is another one.
bool Loss(const Problem& problem, const std::vector<Partition>& classes, double* loss) {
  const Solution solution = SolveCanonical(problem.params, problem.keys).value();
  *loss = problem.adjoint.rho * solution.rho;
  for (size_t i = 0; i < solution.a.size(); ++i) *loss += problem.adjoint.a[i] * solution.a[i];
  return solution.classes == classes && !solution.ambiguous;
}

// The central difference along one number of the problem, if the partition stays.
bool Difference(const Problem& problem, const std::vector<Partition>& classes,
                const std::function<double*(Problem*)>& number, double* slope) {
  double loss[2];
  for (const int side : {0, 1}) {
    Problem moved = problem;
    *number(&moved) += side == 0 ? -kEps : kEps;
    if (!Loss(moved, classes, &loss[side])) return false;
  }
  *slope = (loss[1] - loss[0]) / (2.0 * kEps);
  return true;
}

struct Tally {
  int compared = 0;
  int moved = 0;  // the partition changed within eps
  int with_copies = 0;
  int in_margin = 0;
};

void CheckProblem(const Problem& problem, Tally* tally) {
  const SolutionGradient gradient = Backward(problem);
  const Solution solution = SolveCanonical(problem.params, problem.keys).value();
  const auto compare = [&](double got, const std::function<double*(Problem*)>& number) {
    double want = 0.0;
    if (!Difference(problem, solution.classes, number, &want)) return ++tally->moved;
    EXPECT_TRUE(Near(got, want)) << got << " want " << want;
    return ++tally->compared;
  };
  KeyGroups groups(kDim);
  groups.Append(problem.keys);
  for (size_t i = 0; i < solution.a.size(); ++i) {
    if (solution.classes[i] == Partition::kMargin) {
      ++tally->in_margin;
      const auto group = static_cast<size_t>(groups.GroupOf(static_cast<int64_t>(i)));
      tally->with_copies += groups.weights()[group] > 1.0 ? 1 : 0;
    }
    for (size_t c = 0; c < static_cast<size_t>(kDim); ++c) {
      const size_t at = i * static_cast<size_t>(kDim) + c;
      compare(gradient.keys[at], [at](Problem* p) { return &p->keys[at]; });
    }
  }
  compare(gradient.sigma, [](Problem* p) { return &p->params.sigma; });
  compare(gradient.ridge, [](Problem* p) { return &p->params.ridge; });
}

class SolutionBackwardKindsTest : public ::testing::TestWithParam<KeyKind> {};

TEST_P(SolutionBackwardKindsTest, EqualsFiniteDifferences) {
  std::mt19937_64 random(11);
  Tally tally;
  for (const double ridge : {0x1.0p-11, 0.05}) {
    for (const double box_mass : {3.0, 5.5, 9.0}) {
      CheckProblem(MakeProblem(GetParam(), 15, box_mass, ridge, &random), &tally);
    }
  }
  EXPECT_GT(tally.compared, 4 * tally.moved);
  EXPECT_GT(tally.in_margin, 10);
  if (GetParam() == KeyKind::kDuplicates) {
    EXPECT_GT(tally.with_copies, 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SolutionBackwardKindsTest,
                         ::testing::Values(KeyKind::kGaussian, KeyKind::kUnitSphere,
                                           KeyKind::kClusters, KeyKind::kDuplicates,
                                           KeyKind::kFewKeys));

TEST(SolutionBackwardTest, AMarginSetWithoutKeysMovesRhoAlone) {
  std::mt19937_64 random(12);
  Tally tally;
  // Fewer keys than the mass: a = 1.
  for (const int64_t n : {1, 2, 6}) {
    CheckProblem(MakeProblem(KeyKind::kGaussian, n, 7.0, 0x1.0p-11, &random), &tally);
  }
  EXPECT_EQ(tally.in_margin, 0);
  EXPECT_EQ(tally.moved, 0);
  // A wide kernel: now and then the outermost keys take all the mass.
  int empty = 0;
  for (int trial = 0; trial < 300 && empty < 5; ++trial) {
    Problem problem = MakeProblem(KeyKind::kGaussian, 8, 3.0, 0x1.0p-11, &random);
    problem.params.sigma = 8.0;
    const Solution solution = SolveCanonical(problem.params, problem.keys).value();
    if (std::count(solution.classes.begin(), solution.classes.end(), Partition::kMargin) != 0) {
      continue;
    }
    ++empty;
    CheckProblem(problem, &tally);
  }
  EXPECT_EQ(empty, 5);
  EXPECT_EQ(tally.in_margin, 0);
}

TEST(SolutionBackwardTest, NoKeysGiveNoGradient) {
  CanonicalSolver solver(MakeParamsOrDie(1.0, 4.0, 0x1.0p-11, kDim));
  EXPECT_OK(solver.Solve());
  EXPECT_TRUE(solver.Backward({}).keys.empty());
}

// A symmetric pair of entries moved at a time; the plain active set solves any such matrix.
TEST(SolutionBackwardTest, TheDualGivesTheGradientOfEveryGramEntry) {
  std::mt19937_64 random(13);
  const Problem problem = MakeProblem(KeyKind::kGaussian, 12, 4.0, 0.01, &random);
  const SolutionGradient gradient = Backward(problem);
  const Solution solution = SolveCanonical(problem.params, problem.keys).value();
  const size_t n = solution.a.size();
  const auto loss = [&](size_t row, size_t column, double by) {
    ActiveSetRef<long double>::Matrix twice(n, std::vector<long double>(n));
    std::vector<double> gram(n);
    for (size_t i = 0; i < n; ++i) {
      GramRow(absl::MakeConstSpan(problem.keys).subspan(i * 3, 3), problem.keys,
              problem.params.sigma, absl::MakeSpan(gram));
      for (size_t j = 0; j < n; ++j) twice[i][j] = 2.0L * static_cast<long double>(gram[j]);
      twice[i][i] += 2.0L * static_cast<long double>(problem.params.ridge);
    }
    twice[row][column] += 2.0L * static_cast<long double>(by);
    twice[column][row] = twice[row][column];
    ActiveSetRef<long double> solver(std::move(twice), 4.0L, 1e-15L);
    EXPECT_TRUE(solver.Run());
    long double sum =
        static_cast<long double>(problem.adjoint.rho) * (1.0L - solver.GradientOfRank(4) / 4.0L);
    for (size_t i = 0; i < n; ++i) {
      sum += static_cast<long double>(problem.adjoint.a[i]) * solver.a()[i];
    }
    return static_cast<double>(sum);
  };
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) {
      const double got =
          -2.0 * (gradient.dual[i] * solution.a[j] + gradient.dual[j] * solution.a[i]);
      EXPECT_TRUE(Near(got, (loss(i, j, kEps) - loss(i, j, -kEps)) / (2.0 * kEps)));
    }
  }
}

void ExpectSame(const SolutionGradient& got, const SolutionGradient& want) {
  ASSERT_EQ(got.keys.size(), want.keys.size());
  for (size_t i = 0; i < got.keys.size(); ++i) {
    EXPECT_NEAR(got.keys[i], want.keys[i], 1e-9 * (1.0 + std::abs(want.keys[i])));
  }
  EXPECT_NEAR(got.sigma, want.sigma, 1e-9 * (1.0 + std::abs(want.sigma)));
}

// The factor is that of the last Solve, of an earlier one, or gone.
TEST(SolutionBackwardTest, AnyStateOfTheSolverGivesTheSame) {
  std::mt19937_64 random(14);
  const Problem problem = MakeProblem(KeyKind::kDuplicates, 60, 12.0, 0x1.0p-11, &random);
  const SolutionGradient want = Backward(problem);
  CanonicalSolver solver(problem.params);
  for (const auto& [from, to] : {std::pair<size_t, size_t>{0, 25}, {25, 60}}) {
    const absl::Span<const double> keys = problem.keys;
    ASSERT_OK(solver.Append(keys.subspan(3 * from, 3 * (to - from))));
    ASSERT_OK(solver.Solve());
    SolutionAdjoint part = problem.adjoint;
    part.a.resize(to);
    solver.Backward(part);
  }
  ExpectSame(solver.Backward(problem.adjoint), want);
  CanonicalSolver copy(solver);
  ExpectSame(copy.Backward(problem.adjoint), want);
  CanonicalSolver longer(problem.params);
  ASSERT_OK(longer.Append(problem.keys));
  ASSERT_OK(longer.Append(MakeKeys(KeyKind::kGaussian, 9, kDim, &random)));
  ASSERT_OK(longer.Solve());
  longer.Truncate(60, solver.solution());
  ExpectSame(longer.Backward(problem.adjoint), want);
}

TEST(DecisionBackwardTest, EqualsFiniteDifferencesOfTheWholeFunction) {
  std::mt19937_64 random(15);
  std::normal_distribution<double> normal;
  Problem problem = MakeProblem(KeyKind::kGaussian, 14, 4.0, 0x1.0p-11, &random);
  const std::vector<double> queries = MakeKeys(KeyKind::kGaussian, 3, kDim, &random);
  const std::vector<double> f_adjoint = {normal(random), normal(random), normal(random)};
  const Solution solution = SolveCanonical(problem.params, problem.keys).value();
  const auto loss = [&](const Params& params, const std::vector<double>& keys,
                        const std::vector<double>& at) {
    const Solution moved = SolveCanonical(params, keys).value();
    EXPECT_EQ(moved.classes, solution.classes);
    std::vector<double> row(moved.a.size());
    double sum = 0.0;
    for (size_t q = 0; q < f_adjoint.size(); ++q) {
      GramRow(absl::MakeConstSpan(at).subspan(q * 3, 3), keys, params.sigma, absl::MakeSpan(row));
      double f = moved.rho - 1.0;
      for (size_t i = 0; i < row.size(); ++i) f += 2.0 / moved.mass * moved.a[i] * row[i];
      sum += f_adjoint[q] * f;
    }
    return sum;
  };
  const DecisionGradient direct =
      DecisionBackward(problem.params, problem.keys, solution, queries, f_adjoint);
  problem.adjoint = direct.adjoint;
  const SolutionGradient through = Backward(problem);
  for (size_t at = 0; at < problem.keys.size(); ++at) {
    std::vector<double> high = problem.keys;
    std::vector<double> low = problem.keys;
    high[at] += kEps;
    low[at] -= kEps;
    const double want =
        (loss(problem.params, high, queries) - loss(problem.params, low, queries)) / (2.0 * kEps);
    EXPECT_TRUE(Near(direct.keys[at] + through.keys[at], want));
  }
  for (size_t at = 0; at < queries.size(); ++at) {
    std::vector<double> high = queries;
    std::vector<double> low = queries;
    high[at] += kEps;
    low[at] -= kEps;
    const double want =
        (loss(problem.params, problem.keys, high) - loss(problem.params, problem.keys, low)) /
        (2.0 * kEps);
    EXPECT_TRUE(Near(direct.queries[at], want));
  }
  Params wide = problem.params;
  Params narrow = problem.params;
  wide.sigma += kEps;
  narrow.sigma -= kEps;
  const double want =
      (loss(wide, problem.keys, queries) - loss(narrow, problem.keys, queries)) / (2.0 * kEps);
  EXPECT_TRUE(Near(direct.sigma + through.sigma, want));
}

}  // namespace
}  // namespace lethe::svdd
