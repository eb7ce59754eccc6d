// Goal: on random problems every stated bound (sum alpha kappa, alpha, rho, f, o of both readouts) is at
// least the true deviation, a partition that is proved is the true one, and where it is proved the bounds
// are within 100 of the truth in the median.
// Method: problems of every kind of keys, widths, masses around n and ridges; the optimum in 256-bit
// arithmetic (svdd_exact.h); reported are the canonical solution, that solution with alpha and rho off by
// 1e-7 and by 1e-2 (so that its sum is not 1), with the witness that a server makes, and a feasible
// solution far from optimal. Besides, masses bisected to where the partition changes, where margins are
// as small as doubles allow. LETHE_TEST_LONG=1 takes 10,400 problems and 1,300 bisected ones, otherwise a
// share.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "memory/svdd/canonical.h"
#include "memory/svdd/proof.h"
#include "memory/svdd/readout_bound.h"
#include "memory/svdd/witness.h"
#include "tests/memory/svdd_exact.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

constexpr int kTrialsOfAll = 800;  // per kind of keys
constexpr int kTrialsOfShare = 120;
constexpr size_t kQueries = 6;

bool WantsAll() {
  const char* value = std::getenv("LETHE_TEST_LONG");
  return value != nullptr && std::string(value) == "1";
}

// Ratios of bounds to true deviations.
struct Tightness {
  std::vector<double> kernel, alpha, rho, decision, rbf, hybrid;
};

struct Tally {
  int64_t solutions = 0;
  int64_t proved = 0;
  int64_t true_partition = 0;  // the reported classes are the optimum's
  int64_t violations = 0;
  int64_t wrongly_proved = 0;
  int64_t sum_off = 0;  // sum alpha is not 1
  Tightness proved_tightness;
  Tightness gap_tightness;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

class Checker {
 public:
  Checker(const ExactCase& c, Tally* tally) : c_(c), tally_(tally) {}

  void Check(const Solution& reported) {
    ReportedSolution solution{reported.classes, reported.a, reported.rho, nullptr};
    const std::optional<Witness> witness = RefineWitness(c_.params, c_.keys, solution);
    if (witness.has_value()) solution.witness = &*witness;
    ASSERT_OK_AND_ASSIGN(OptimalityBounds bounds, ProveOptimality(c_.params, c_.keys, solution));
    const Deviations truth = DeviationsOf(c_, reported.a, reported.rho);
    Tightness* tightness =
        bounds.partition_proved ? &tally_->proved_tightness : &tally_->gap_tightness;
    Compare("sum alpha kappa", truth.kernel_sum, bounds.kernel_sum_bound, &tightness->kernel);
    Compare("alpha", truth.alpha, bounds.alpha_bound, &tightness->alpha);
    Compare("rho", truth.rho, bounds.rho_bound, &tightness->rho);
    Compare("f", truth.decision, bounds.decision_bound, &tightness->decision);
    CompareReadouts(reported, truth, &bounds, tightness);
    Count(reported, bounds);
  }

 private:
  void Compare(const char* name, const Wide& truth, double bound, std::vector<double>* ratios) {
    if (truth > Wide(bound)) {
      ++tally_->violations;
      ADD_FAILURE() << name << ": " << static_cast<double>(truth) << " above " << bound;
    }
    if (truth > 0) ratios->push_back(static_cast<double>(Wide(bound) / truth));
  }

  void CompareReadouts(const Solution& reported, const Deviations& truth, OptimalityBounds* bounds,
                       Tightness* tightness) {
    for (const bool hybrid : {false, true}) {
      const char* name = hybrid ? "o, hybrid" : "o, RBF";
      const ReadoutValues<double> values = c_.Values(hybrid);
      std::vector<double>* ratios = hybrid ? &tightness->hybrid : &tightness->rbf;
      if (bounds->partition_proved) {
        AddReadoutBound(absl::MakeConstSpan(reported.classes), values, bounds);
        Compare(name, hybrid ? truth.readout_hybrid : truth.readout_rbf, bounds->readout_bound,
                ratios);
        continue;
      }
      EXPECT_EQ(bounds->readout_bound, std::numeric_limits<double>::infinity());
      const std::vector<double> ranges =
          ValueRanges(absl::MakeConstSpan(reported.classes), values, ValueSet::kRetained);
      const double range = *std::max_element(ranges.begin(), ranges.end());
      for (size_t q = 0; q < c_.queries.size(); ++q) {
        Compare(name, hybrid ? truth.hybrid[q] : truth.rbf[q],
                range * 1.0000001 * FactorAt(reported, *bounds, c_.queries[q], hybrid), ratios);
      }
    }
  }

  // As a client would evaluate it, from weights in doubles.
  double FactorAt(const Solution& reported, const OptimalityBounds& bounds, const ExactQuery& query,
                  bool hybrid) const {
    const std::vector<Wide>& exact = hybrid ? query.hybrid : query.kernel;
    const Wide largest = *std::max_element(exact.begin(), exact.end());
    std::vector<double> weights;
    for (const Wide& w : exact) weights.push_back(static_cast<double>(Wide(w / largest)));
    QueryWeights of{weights, 0.0, 0x1.0p-50};
    for (const Wide& w : query.local) {
      of.local_sum += hybrid ? static_cast<double>(Wide(w / largest)) : 0.0;
    }
    return ReadoutFactorAt(bounds, reported.a, reported.mass, of);
  }

  void Count(const Solution& reported, const OptimalityBounds& bounds) {
    ++tally_->solutions;
    Wide sum = -c_.mass;
    for (const double a : reported.a) sum += a;
    tally_->sum_off += sum != 0 ? 1 : 0;
    const bool right = reported.classes == c_.classes;
    tally_->true_partition += right ? 1 : 0;
    tally_->proved += bounds.partition_proved ? 1 : 0;
    if (bounds.partition_proved && !right) {
      ++tally_->wrongly_proved;
      ADD_FAILURE() << "a partition that is not the optimum's is proved";
    }
  }

  const ExactCase& c_;
  Tally* tally_;
};

// Margin rows moved by up to `size`, rho too.
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

Params RandomParams(int64_t n, int64_t dim, std::mt19937_64* random) {
  constexpr double kSigmas[] = {0.3, 1.3, 4.0, 30.0};
  constexpr double kRidges[] = {0x1.0p-11, 0x1.0p-11, 1e-4, 1e-8};
  std::uniform_real_distribution<double> uniform(1.0, static_cast<double>(n) + 1.0);
  const double near_n = static_cast<double>(n) - 1.0 + 0.5 * static_cast<double>((*random)() % 4);
  const double masses[] = {2.0 + static_cast<double>((*random)() % 4), uniform(*random),
                           uniform(*random), std::max(1.0, near_n)};
  return MakeParamsOrDie(kSigmas[(*random)() % 4], masses[(*random)() % 4],
                         kRidges[(*random)() % 4], dim);
}

void Print(const char* name, const Tally& tally) {
  const auto print = [](const char* which, const Tightness& of) {
    std::printf(
        "    bound/truth, median, %s: sum %.3g, alpha %.3g, rho %.3g, f %.3g, o RBF %.3g, "
        "o hybrid %.3g\n",
        which, Median(of.kernel), Median(of.alpha), Median(of.rho), Median(of.decision),
        Median(of.rbf), Median(of.hybrid));
  };
  std::printf(
      "  %-14s %lld solutions, sum alpha not 1 in %lld; true partition %lld, proved %lld, "
      "wrongly %lld; bounds below the truth %lld\n",
      name, static_cast<long long>(tally.solutions), static_cast<long long>(tally.sum_off),
      static_cast<long long>(tally.true_partition), static_cast<long long>(tally.proved),
      static_cast<long long>(tally.wrongly_proved), static_cast<long long>(tally.violations));
  if (tally.proved > 0) print("proved", tally.proved_tightness);
  if (tally.proved < tally.solutions) print("not proved", tally.gap_tightness);
}

void ExpectTight(const Tightness& of) {
  EXPECT_LE(Median(of.kernel), 100.0);
  EXPECT_LE(Median(of.alpha), 100.0);
  EXPECT_LE(Median(of.rho), 100.0);
  EXPECT_LE(Median(of.decision), 100.0);
  EXPECT_LE(Median(of.rbf), 100.0);
  EXPECT_LE(Median(of.hybrid), 100.0);
}

TEST(SvddProofBoundsTest, HoldAndAreTightOnRandomProblems) {
  std::mt19937_64 random(1);
  Tally canonical;
  Tally slightly;
  Tally perturbed;
  Tally wrong;
  int64_t problems = 0;
  int64_t empty_margins = 0;
  int64_t single_points = 0;
  const int trials = WantsAll() ? kTrialsOfAll : kTrialsOfShare;
  for (const KeyKind kind : kAllKinds) {
    for (int trial = 0; trial < trials; ++trial) {
      SCOPED_TRACE(KindName(kind) + std::string(" trial ") + std::to_string(trial));
      const auto n = 2 + static_cast<int64_t>(random() % (trial % 8 == 0 ? 23 : 11));
      const auto dim = 1 + static_cast<int64_t>(random() % 5);
      const Params params = RandomParams(n, dim, &random);
      const ExactCase c = MakeExactCase(params, MakeKeys(kind, n, dim, &random), kQueries, &random);
      ASSERT_TRUE(c.solved);
      ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, c.keys));
      const bool single = static_cast<double>(n) <= params.box_mass;
      const bool has_margin =
          std::count(c.classes.begin(), c.classes.end(), Partition::kMargin) > 0;
      ++problems;
      single_points += single ? 1 : 0;
      empty_margins += !single && !has_margin ? 1 : 0;
      Checker(c, &canonical).Check(solution);
      Checker(c, &slightly).Check(Perturbed(solution, 1e-7, &random));
      Checker(c, &perturbed).Check(Perturbed(solution, 1e-2, &random));
      Checker(c, &wrong).Check(Wrong(solution));
      if (HasFatalFailure()) return;
    }
  }
  std::printf("%lld problems, n <= M in %lld, empty margin in %lld\n",
              static_cast<long long>(problems), static_cast<long long>(single_points),
              static_cast<long long>(empty_margins));
  Print("canonical", canonical);
  Print("off by 1e-7", slightly);
  Print("off by 1e-2", perturbed);
  Print("far", wrong);
  EXPECT_GE(empty_margins, 10);
  EXPECT_GE(single_points, 10);
  // A right partition that is not proved is one whose margin is too small.
  EXPECT_GE(canonical.proved * 100, canonical.true_partition * 95);
  EXPECT_GE(canonical.sum_off * 10, canonical.solutions);
  ExpectTight(canonical.proved_tightness);
  ExpectTight(slightly.proved_tightness);
  ExpectTight(perturbed.proved_tightness);
}

// Two masses, neighbouring doubles or nearly, between which the classes change; nothing when they do not
// change between `low` and `high`.
std::optional<std::pair<Params, Params>> BisectMass(Params low, Params high,
                                                    const std::vector<double>& keys) {
  const auto classes = [&](const Params& params) {
    return SolveCanonical(params, keys).value().classes;
  };
  const std::vector<Partition> below = classes(low);
  if (below == classes(high)) return std::nullopt;
  for (int step = 0; step < 60; ++step) {
    const double middle = low.box_mass + 0.5 * (high.box_mass - low.box_mass);
    if (middle == low.box_mass || middle == high.box_mass) break;
    const Params params = MakeParamsOrDie(low.sigma, middle, low.ridge, low.key_dim);
    // Snapped to an integer: no further that way.
    if (params.box_mass != middle) return std::nullopt;
    (classes(params) == below ? low : high) = params;
  }
  return std::pair(low, high);
}

TEST(SvddProofBoundsTest, HoldWhereThePartitionChanges) {
  std::mt19937_64 random(2);
  Tally at_change;
  const int wanted = WantsAll() ? 100 : 10;
  for (const KeyKind kind : kAllKinds) {
    int found = 0;
    for (int trial = 0; found < wanted && trial < 20 * wanted; ++trial) {
      SCOPED_TRACE(KindName(kind) + std::string(" trial ") + std::to_string(trial));
      const auto n = 5 + static_cast<int64_t>(random() % 6);
      const std::vector<double> keys = MakeKeys(kind, n, 2, &random);
      const double ridge = trial % 2 == 0 ? 0x1.0p-11 : 1e-8;
      const double mass = 1.25 + static_cast<double>(random() % 3);
      const auto changed = BisectMass(MakeParamsOrDie(1.3, mass, ridge, 2),
                                      MakeParamsOrDie(1.3, mass + 0.6, ridge, 2), keys);
      if (!changed.has_value()) continue;
      ++found;
      for (const double offset : {0.0, 1e-14, 1e-12, 1e-9}) {
        const Params params = MakeParamsOrDie(1.3, changed->second.box_mass + offset, ridge, 2);
        const ExactCase c = MakeExactCase(params, keys, 2, &random);
        ASSERT_TRUE(c.solved);
        ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, keys));
        Checker(c, &at_change).Check(solution);
        // The partition on the other side of the change, for this mass.
        ASSERT_OK_AND_ASSIGN(Solution other, SolveCanonical(changed->first, keys));
        other.mass = solution.mass;
        Checker(c, &at_change).Check(other);
        if (HasFatalFailure()) return;
      }
    }
  }
  Print("at a change", at_change);
  EXPECT_GE(at_change.solutions, 13 * wanted * 4) << "too few changes were found";
  EXPECT_LT(at_change.true_partition, at_change.solutions);
  EXPECT_GT(at_change.proved, at_change.solutions / 4);
}

}  // namespace
}  // namespace lethe::svdd
