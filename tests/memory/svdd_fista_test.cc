// Goal: the training path reaches the optimum that is served, as far as its stopping rule says, and with
// the paper's settings is the paper's algorithm.
// Method: SolveCanonical as the truth for every kind of keys, in f64 and f32, warm and cold; SV-Attention
// B written down again in alpha-units; the projection by its optimality conditions. The distances to the
// served gate are printed.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "kernels/gram/gram.h"
#include "memory/svdd/canonical.h"
#include "memory/svdd/fista.h"
#include "tests/memory/svdd_testing.h"

namespace lethe::svdd {
namespace {

std::vector<double> First(const std::vector<double>& keys, int64_t count, int64_t dim) {
  return {keys.begin(), keys.begin() + count * dim};
}

double LargestDifference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// sum |a - b| / m: of alpha, whose sum is 1.
double AlphaDistance(const std::vector<double>& a, const Solution& solution) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - solution.a[i]);
  return sum / solution.mass;
}

template <typename Real>
void CheckProjection(double tolerance) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal(0.0, 2.0);
  for (int trial = 0; trial < 200; ++trial) {
    const size_t n = 1 + random() % 40;
    const double mass = trial % 3 == 0 ? static_cast<double>(1 + random() % n)
                                       : 1.0 + 0.37 * static_cast<double>(n - 1);
    std::vector<Real> z(n);
    for (Real& x : z) x = static_cast<Real>(normal(random));
    std::vector<Real> a = z;
    ProjectToBox(mass, &a);
    double sum = 0.0;
    double low = -1e300;  // the shift c: z - c = a inside, <= 0 at 0, >= 1 at 1
    double high = 1e300;
    for (size_t i = 0; i < n; ++i) {
      sum += static_cast<double>(a[i]);
      const double shift = static_cast<double>(z[i] - a[i]);
      if (a[i] > Real(0)) high = std::min(high, shift);
      if (a[i] < Real(1)) low = std::max(low, shift);
    }
    EXPECT_NEAR(sum, mass, tolerance * static_cast<double>(n));
    EXPECT_LE(low, high + 4.0 * tolerance);
  }
}

TEST(ProjectToBoxTest, GivesTheNearestFeasiblePoint) {
  CheckProjection<double>(1e-14);
  CheckProjection<float>(2e-6);
}

// Well separated classes: margins of at least `margin` in a-units.
bool IsClear(const Solution& solution, double margin) { return solution.smallest_margin >= margin; }

TEST(FistaGatesTest, ReachesTheServedGate) {
  std::mt19937_64 random(2);
  int clear = 0;
  for (const KeyKind kind : kAllKinds) {
    for (const double box_mass : {6.0, 20.5}) {
      const Params params = MakeParamsOrDie(1.3, box_mass, 0x1.0p-11, 4);
      const std::vector<double> keys = MakeKeys(kind, 70, 4, &random);
      FistaOptions options = FistaOptions::Serving(params);
      options.tolerance = 1e-6;
      options.max_steps = 100000;
      const std::vector<FistaGate> gates = FistaGates<double>(params, keys, {40, 70}, options);
      for (const FistaGate& gate : gates) {
        const auto n = static_cast<int64_t>(gate.a.size());
        const Solution want = SolveCanonical(params, First(keys, n, 4)).value();
        EXPECT_TRUE(gate.converged) << KindName(kind) << " residual " << gate.residual;
        // |a - a*| <= sqrt(G/2 ridge) and G <= 2 residual m.
        const double bound = std::sqrt(1e-6 * want.mass / params.ridge);
        EXPECT_LE(LargestDifference(gate.iterate, want.a), bound) << KindName(kind);
        if (!IsClear(want, 0.01)) continue;
        ++clear;
        EXPECT_EQ(gate.classes, want.classes) << KindName(kind);
        EXPECT_LE(LargestDifference(gate.a, want.a), 1e-9) << KindName(kind);
        EXPECT_NEAR(gate.rho, want.rho, 1e-9) << KindName(kind);
      }
    }
  }
  EXPECT_GE(clear, 8);
}

TEST(FistaGatesTest, FewerKeysThanTheMassAreAllAtTheBound) {
  std::mt19937_64 random(3);
  const Params params = MakeParamsOrDie(1.3, 10.0, 0x1.0p-11, 4);
  const std::vector<double> keys = MakeKeys(KeyKind::kGaussian, 10, 4, &random);
  const FistaOptions options = FistaOptions::Serving(params);
  for (const FistaGate& gate : FistaGates<double>(params, keys, {1, 2, 10}, options)) {
    const auto n = static_cast<int64_t>(gate.a.size());
    const Solution want = SolveCanonical(params, First(keys, n, 4)).value();
    EXPECT_TRUE(gate.converged);
    EXPECT_EQ(gate.num_steps, 0);
    EXPECT_EQ(gate.a, want.a);
    EXPECT_EQ(gate.classes, want.classes);
    EXPECT_NEAR(gate.rho, want.rho, 1e-14);
  }
  EXPECT_TRUE(FistaGates<double>(params, keys, {}, options).empty());
}

TEST(FistaGatesTest, AWarmStartSavesStepsAndChangesNothingElse) {
  std::mt19937_64 random(4);
  const Params params = MakeParamsOrDie(1.3, 20.0, 0x1.0p-11, 8);
  const std::vector<double> keys = MakeKeys(KeyKind::kUnitSphere, 192, 8, &random);
  FistaOptions options = FistaOptions::Serving(params);
  const std::vector<FistaGate> warm = FistaGates<double>(params, keys, {184, 192}, options);
  options.warm_start = false;
  const std::vector<FistaGate> cold = FistaGates<double>(params, keys, {184, 192}, options);
  EXPECT_EQ(warm[0].num_steps, cold[0].num_steps);
  EXPECT_LT(warm[1].num_steps, cold[1].num_steps);
  EXPECT_LE(LargestDifference(warm[1].iterate, cold[1].iterate), 0.05);
}

TEST(FistaGatesTest, SaysWhenTheStepsDidNotSuffice) {
  std::mt19937_64 random(5);
  const Params params = MakeParamsOrDie(1.3, 20.0, 0x1.0p-11, 8);
  const std::vector<double> keys = MakeKeys(KeyKind::kUnitSphere, 128, 8, &random);
  FistaOptions options = FistaOptions::Serving(params);
  options.max_steps = 7;
  const FistaGate gate = FistaGates<double>(params, keys, {128}, options)[0];
  EXPECT_FALSE(gate.converged);
  EXPECT_EQ(gate.num_steps, 7);
  EXPECT_GT(gate.residual, options.tolerance);
}

// SV-Attention B, line by line, in alpha-units: 80 steps, classes, linear system; returns alpha.
std::vector<double> PaperAlpha(const Params& params, const std::vector<double>& keys) {
  const size_t dim = static_cast<size_t>(params.key_dim);
  const size_t n = keys.size() / dim;
  const double box = 1.0 / params.box_mass;
  std::vector<std::vector<double>> gram(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) {
    GramRow(absl::MakeConstSpan(keys).subspan(i * dim, dim), keys, params.sigma,
            absl::MakeSpan(gram[i]));
  }
  const auto times = [&](const std::vector<double>& x) {
    std::vector<double> out(n, 0.0);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) out[i] += gram[i][j] * x[j];
    }
    return out;
  };
  std::vector<double> v(n, 1.0);
  double norm = 0.0;
  for (int step = 0; step < 8; ++step) {
    v = times(v);
    norm = 0.0;
    for (const double x : v) norm += x * x;
    norm = std::sqrt(norm);
    for (double& x : v) x /= norm;
  }
  const double rate = 1.0 / (2.0 * norm + 1e-6);
  std::vector<double> a(n, 1.0 / static_cast<double>(n));
  std::vector<double> y = a;
  double t = 1.0;
  for (int step = 0; step < 80; ++step) {
    const std::vector<double> sums = times(y);
    std::vector<double> z(n);
    for (size_t i = 0; i < n; ++i) z[i] = y[i] - rate * (2.0 * sums[i] - 1.0);
    double low = *std::min_element(z.begin(), z.end()) - box - 1.0;
    double high = *std::max_element(z.begin(), z.end()) + 1.0;
    for (int halving = 0; halving < 60; ++halving) {
      double sum = 0.0;
      for (const double x : z) sum += std::clamp(x - 0.5 * (low + high), 0.0, box);
      (sum > 1.0 ? low : high) = 0.5 * (low + high);
    }
    const double t_next = 0.5 * (1.0 + std::sqrt(1.0 + 4.0 * t * t));
    for (size_t i = 0; i < n; ++i) {
      const double next = std::clamp(z[i] - 0.5 * (low + high), 0.0, box);
      y[i] = next + (t - 1.0) / t_next * (next - a[i]);
      a[i] = next;
    }
    t = t_next;
  }
  return a;
}

TEST(FistaGatesTest, PaperSettingsAreThePapersIteration) {
  std::mt19937_64 random(6);
  const Params params = MakeParamsOrDie(2.0, 4.0, 0x1.0p-11, 16);  // C = 0.25
  const std::vector<double> keys = MakeKeys(KeyKind::kUnitSphere, 64, 16, &random);
  const std::vector<double> want = PaperAlpha(params, keys);
  const FistaGate gate = FistaGates<double>(params, keys, {64}, FistaOptions::Paper(4.0))[0];
  EXPECT_EQ(gate.num_steps, 80);
  double sum = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(gate.iterate[i] / 4.0, want[i], 1e-10);
    sum += gate.a[i] / 4.0;
    const Partition place = want[i] >= 0.25 - 1e-3 ? Partition::kError
                            : want[i] > 1e-3       ? Partition::kMargin
                                                   : Partition::kReserve;
    EXPECT_EQ(gate.classes[i], place);
  }
  EXPECT_NEAR(sum, 1.0, 1e-9) << "the system keeps the sum";
}

// What is trained on against what is served, printed for train/README.md: sum |d alpha| (of a total of 1).
template <typename Real>
double PrintDistance(const char* name, const Params& params, const std::vector<double>& keys,
                     const FistaOptions& options) {
  const auto n = static_cast<int64_t>(keys.size()) / params.key_dim;
  const Solution want = SolveCanonical(params, keys).value();
  const FistaGate gate = FistaGates<Real>(params, keys, {n}, options)[0];
  size_t moved = 0;
  for (size_t i = 0; i < gate.a.size(); ++i) moved += gate.classes[i] != want.classes[i] ? 1 : 0;
  const double distance = AlphaDistance(gate.a, want);
  std::printf(
      "%-22s n %5lld M %4.0f  steps %6d  residual %.1e  iterate %.1e  with system %.1e  classes %zu"
      "  min a %.2f\n",
      name, static_cast<long long>(n), params.box_mass, gate.num_steps, gate.residual,
      AlphaDistance(gate.iterate, want), distance, moved,
      *std::min_element(gate.a.begin(), gate.a.end()));
  return distance;
}

TEST(FistaGatesTest, DistanceToTheServedGate) {
  const char* long_tests = std::getenv("LETHE_TEST_LONG");
  const bool is_long = long_tests != nullptr && std::string(long_tests) == "1";
  for (const int64_t n : {int64_t{256}, int64_t{1024}}) {
    if (n > 256 && !is_long) continue;
    for (const double box_mass : {4.0, 64.0}) {
      std::mt19937_64 random(7);
      const Params params = MakeParamsOrDie(2.0, box_mass, 0x1.0p-11, 64);
      const std::vector<double> keys = MakeKeys(KeyKind::kUnitSphere, n, 64, &random);
      const FistaOptions ours = FistaOptions::Serving(params);
      FistaOptions tight = ours;
      tight.tolerance = 1e-5;
      const double paper =
          PrintDistance<double>("paper, 80 steps", params, keys, FistaOptions::Paper(box_mass));
      const double f64 = PrintDistance<double>("ours f64, 1e-4", params, keys, ours);
      const double f32 = PrintDistance<float>("ours f32, 1e-4", params, keys, ours);
      const double best = PrintDistance<double>("ours f64, 1e-5", params, keys, tight);
      EXPECT_LT(f64, 0.1 * paper + 1e-3);
      EXPECT_LT(f32, 0.1 * paper + 1e-3);
      EXPECT_LT(best, 0.01);
    }
  }
}

}  // namespace
}  // namespace lethe::svdd
