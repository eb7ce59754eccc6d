// Goal: Polish rounds the exact solution of a partition's linear system, whatever factor it was
// given; Accept proves margins that are there and refuses those that are not; the fallback reaches
// the optimum from its cold start.
// Method: the system solved in 256-bit arithmetic; factors in many orders; the wide rounding
// forced.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "boost/multiprecision/cpp_bin_float.hpp"
#include "memory/svdd/canon.h"
#include "memory/svdd/fallback.h"
#include "memory/svdd/polish.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

namespace mp = boost::multiprecision;
using Wide = mp::number<mp::cpp_bin_float<256, mp::digit_base_2>, mp::et_off>;

struct Problem {
  Params params;
  GramCache gram;
  Solution solution;
  std::vector<Partition> classes;  // per group, as margin, error and a
  std::vector<double> a;
  std::vector<int64_t> margin;
  std::vector<int64_t> error;

  double mass() const { return solution.mass; }
  double ridge_lower() const { return RidgeLower(params, gram.num_keys()); }
};

Problem MakeProblem(KeyKind kind, int64_t n, double box_mass, double ridge,
                    std::mt19937_64* random) {
  const Params params = MakeParamsOrDie(1.2, box_mass, ridge, 3);
  const std::vector<double> keys = MakeKeys(kind, n, 3, random);
  Problem problem{
      params, GramCache(params.sigma, 3), SolveCanonical(params, keys).value(), {}, {}, {}, {}};
  problem.gram.Append(keys);
  for (int64_t i = 0; i < problem.gram.num_groups(); ++i) {
    const auto rank = static_cast<size_t>(problem.gram.groups().FirstRank(i));
    const Partition place = problem.solution.classes[rank];
    problem.classes.push_back(place);
    problem.a.push_back(problem.solution.a[rank]);
    if (place == Partition::kMargin) problem.margin.push_back(i);
    if (place == Partition::kError) problem.error.push_back(i);
  }
  return problem;
}

// (lambda, a_S) by elimination.
std::vector<Wide> SolveWide(Problem* problem) {
  const size_t s = problem->margin.size();
  std::vector<std::vector<Wide>> m(s + 1, std::vector<Wide>(s + 2, Wide(0)));
  const auto entry = [&](size_t i, int64_t j) {
    return Wide(problem->gram.Row(problem->margin[i])[static_cast<size_t>(j)]);
  };
  const auto weight = [&](int64_t i) {
    return Wide(problem->gram.weights()[static_cast<size_t>(i)]);
  };
  m[0][s + 1] = Wide(problem->mass());
  for (const int64_t j : problem->error) m[0][s + 1] -= weight(j);
  for (size_t i = 0; i < s; ++i) {
    m[0][i + 1] = weight(problem->margin[i]);
    m[i + 1][0] = -1;
    for (size_t j = 0; j < s; ++j) {
      m[i + 1][j + 1] = 2 * weight(problem->margin[j]) * entry(i, problem->margin[j]);
      if (i == j) m[i + 1][j + 1] += 2 * Wide(problem->params.ridge);
    }
    for (const int64_t j : problem->error) m[i + 1][s + 1] -= 2 * weight(j) * entry(i, j);
  }
  for (size_t c = 0; c <= s; ++c) {
    size_t pivot = c;
    for (size_t r = c + 1; r <= s; ++r) {
      if (abs(m[r][c]) > abs(m[pivot][c])) pivot = r;
    }
    std::swap(m[c], m[pivot]);
    for (size_t r = 0; r <= s; ++r) {
      if (r == c) continue;
      const Wide factor = m[r][c] / m[c][c];
      for (size_t k = c; k <= s + 1; ++k) m[r][k] -= factor * m[c][k];
    }
  }
  std::vector<Wide> x(s + 1);
  for (size_t r = 0; r <= s; ++r) x[r] = m[r][s + 1] / m[r][r];
  return x;
}

CholeskyFactor FactorInOrder(Problem* problem, std::vector<int64_t> order) {
  CholeskyFactor factor(problem->params.ridge);
  std::vector<int64_t> present;
  for (const int64_t id : order) {
    present.insert(std::upper_bound(present.begin(), present.end(), id), id);
    SyncFactor(&problem->gram, problem->gram.weights(), present, &factor);
  }
  return factor;
}

TEST(SvddPolishTest, RoundsTheExactSolutionOfTheSystem) {
  std::mt19937_64 random(1);
  int64_t entries = 0;
  for (const KeyKind kind : kAllKinds) {
    for (const double ridge : {1e-8, 0x1.0p-11}) {
      Problem problem = MakeProblem(kind, 40, 9.3, ridge, &random);
      if (problem.margin.empty()) continue;
      SCOPED_TRACE(KindName(kind));
      const std::vector<Wide> exact = SolveWide(&problem);
      for (int order = 0; order < 3; ++order) {
        std::vector<int64_t> ids = problem.margin;
        if (order > 0) std::shuffle(ids.begin(), ids.end(), random);
        const CholeskyFactor factor = FactorInOrder(&problem, ids);
        PartitionSystem system(&problem.gram, problem.mass(), ridge, problem.ridge_lower(),
                               problem.margin, problem.error);
        ASSERT_TRUE(system.Refine(factor));
        Wide distance = 0;
        for (size_t i = 0; i < problem.margin.size(); ++i) {
          const Wide error = Wide(system.a()[i].hi) + Wide(system.a()[i].lo) - exact[i + 1];
          const auto group = static_cast<size_t>(problem.margin[i]);
          distance += Wide(problem.gram.weights()[group]) * error * error;
        }
        EXPECT_LE(sqrt(distance), Wide(system.radius()));
        EXPECT_LE(abs(Wide(Wide(system.lambda().hi) + Wide(system.lambda().lo) - exact[0])),
                  Wide(system.lambda_radius()));
        for (const bool force : {false, true}) {
          std::vector<double> a;
          double rho = 0.0;
          bool used_more_digits = false;
          ASSERT_TRUE(system.RoundTo(&a, &rho, &used_more_digits, force));
          EXPECT_TRUE(used_more_digits || !force);
          EXPECT_EQ(rho, problem.solution.ambiguous ? rho : problem.solution.rho);
          for (size_t i = 0; i < a.size(); ++i, ++entries) {
            // The nearest double, or multiple of 2^-60 below 2^-8.
            const double high = static_cast<double>(exact[i + 1]);
            const double low = static_cast<double>(Wide(exact[i + 1] - Wide(high)));
            EXPECT_EQ(a[i], RoundToGrid(QuickTwoSum(high, low)));
            if (!problem.solution.ambiguous) {
              EXPECT_EQ(a[i], problem.a[static_cast<size_t>(problem.margin[i])]);
            }
          }
        }
      }
    }
  }
  EXPECT_GE(entries, 1000);
}

TEST(SvddPolishTest, AcceptProvesWhatIsThereAndNothingElse) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 40; ++trial) {
    Problem problem =
        MakeProblem(KeyKind::kGaussian, 30, trial % 2 ? 6.0 : 7.7, 0x1.0p-11, &random);
    const double margin = problem.solution.smallest_margin;
    if (problem.margin.size() < 2) continue;
    Counters counters;
    const auto accepts = [&](const std::vector<Partition>& classes, double required) {
      CholeskyFactor factor(problem.params.ridge);
      Solution solution;
      return Accept(&problem.gram, problem.params, classes, 0.5 * required, required, &factor,
                    &solution, &counters);
    };
    EXPECT_TRUE(accepts(problem.solution.classes, 0.99 * margin));
    EXPECT_FALSE(accepts(problem.solution.classes, 2.0 * margin + 1e-9));
    // Any other partition is refused, at any threshold.
    for (size_t i = 0; i < problem.solution.classes.size(); ++i) {
      std::vector<Partition> wrong = problem.solution.classes;
      wrong[i] = wrong[i] == Partition::kMargin ? Partition::kReserve : Partition::kMargin;
      EXPECT_FALSE(accepts(wrong, 1e-12)) << i;
    }
  }
}

TEST(SvddPolishTest, FallbackReachesTheOptimum) {
  std::mt19937_64 random(3);
  for (const KeyKind kind : kAllKinds) {
    for (const double box_mass : {5.0, 7.7}) {
      for (const double ridge : {1e-8, 0x1.0p-11}) {
        SCOPED_TRACE(KindName(kind));
        Problem problem = MakeProblem(kind, 35, box_mass, ridge, &random);
        const double threshold = MarginThreshold(problem.params, 35);
        EXPECT_GE(threshold, 0x1.0p-30);
        EXPECT_LE(threshold, 1e-6);
        const FallbackResult result =
            Fallback(&problem.gram, box_mass, ridge, problem.ridge_lower(), threshold);
        EXPECT_TRUE(result.certified);
        for (size_t i = 0; i < result.a.size(); ++i) {
          EXPECT_NEAR(result.a[i].hi, problem.a[i], threshold);
        }
        if (!problem.solution.ambiguous) {
          EXPECT_EQ(result.classes, problem.classes);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lethe::svdd
