// Goal: a witness never makes the proof claim what is not so, and a malformed one is refused by name.
// Method: witnesses of random problems, spoiled one bit or one value at a time, exchanged between
// memories, and given where none belongs; the true partition comes from 256-bit arithmetic.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "memory/svdd/canonical.h"
#include "memory/svdd/enclosure.h"
#include "memory/svdd/proof.h"
#include "memory/svdd/witness.h"
#include "tests/memory/svdd_exact.h"
#include "tests/memory/svdd_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::svdd {
namespace {

using ::lethe::testing::StatusIs;

// A solved problem with its witness.
struct Proved {
  Params params;
  std::vector<double> keys;
  Solution solution;
  Witness witness;

  absl::StatusOr<OptimalityBounds> Prove(const Witness* with) const {
    return ProveOptimality(params, keys, {solution.classes, solution.a, solution.rho, with});
  }
};

Proved MakeProved(KeyKind kind, int64_t n, double box_mass, uint64_t seed) {
  std::mt19937_64 random(seed);
  Proved made{MakeParamsOrDie(1.3, box_mass, 0x1.0p-11, 3), MakeKeys(kind, n, 3, &random), {}, {}};
  made.solution = SolveCanonical(made.params, made.keys).value();
  made.witness = RefineWitness(made.params, made.keys,
                               {made.solution.classes, made.solution.a, made.solution.rho, nullptr})
                     .value();
  return made;
}

TEST(SvddWitnessTest, ProvesCanonicalSolutionsToTheirRounding) {
  for (const KeyKind kind : kAllKinds) {
    SCOPED_TRACE(KindName(kind));
    const Proved made = MakeProved(kind, 60, 7.5, 11);
    ASSERT_OK_AND_ASSIGN(const OptimalityBounds without, made.Prove(nullptr));
    EXPECT_FALSE(without.partition_proved);
    EXPECT_EQ(without.weight_ratio_bound, std::numeric_limits<double>::infinity());
    ASSERT_OK_AND_ASSIGN(const OptimalityBounds with, made.Prove(&made.witness));
    EXPECT_TRUE(with.partition_proved);
    // What the kernel's doubles cost the canonical solution, and its own rounding.
    EXPECT_LT(with.alpha_bound, 1e-13);
    EXPECT_LT(with.rho_bound, 1e-14);
    EXPECT_LT(with.decision_bound, 1e-12);
    EXPECT_LT(with.weight_ratio_bound, 1e-7);
    EXPECT_LE(with.gap, without.gap * 1.01);
  }
}

TEST(SvddWitnessTest, IsTheExactSolutionToDoubleDouble) {
  for (const double ridge : {0x1.0p-11, 1e-8}) {
    std::mt19937_64 random(12);
    const Params params = MakeParamsOrDie(1.3, 4.25, ridge, 3);
    const ExactCase c =
        MakeExactCase(params, MakeKeys(KeyKind::kNearDuplicates6, 14, 3, &random), 0, &random);
    ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, c.keys));
    ASSERT_EQ(solution.classes, c.classes);
    const std::optional<Witness> witness =
        RefineWitness(params, c.keys, {solution.classes, solution.a, solution.rho, nullptr});
    ASSERT_TRUE(witness.has_value());
    size_t next = 0;
    for (size_t i = 0; i < c.n(); ++i) {
      if (c.classes[i] != Partition::kMargin) continue;
      EXPECT_LE(abs(Wide(ToWide(witness->a[next++]) - c.a[i])), Wide(1e-30 / ridge)) << ridge;
    }
    EXPECT_EQ(next, witness->a.size());
    EXPECT_LE(abs(Wide(ToWide(witness->lambda) - c.mass * (1 - c.rho))), Wide(1e-29)) << ridge;
  }
}

DoubleDouble FlipBit(const DoubleDouble& x, int bit) {
  DoubleDouble flipped = x;
  double& word = bit < 64 ? flipped.hi : flipped.lo;
  word = std::bit_cast<double>(std::bit_cast<uint64_t>(word) ^ (uint64_t{1} << (bit % 64)));
  return flipped;
}

TEST(SvddWitnessTest, OneFlippedBitNeverProvesWrongly) {
  // Any witness near enough proves the same true partition; a bit that moves it far must not.
  std::mt19937_64 random(13);
  int64_t refused = 0;
  int64_t not_proved = 0;
  int64_t proved = 0;
  const Proved made = MakeProved(KeyKind::kGaussian, 20, 5.5, 14);
  ASSERT_OK_AND_ASSIGN(const OptimalityBounds whole, made.Prove(&made.witness));
  for (size_t i = 0; i <= made.witness.a.size(); ++i) {
    for (int bit = 0; bit < 128; ++bit) {
      Witness spoiled = made.witness;
      DoubleDouble& x = i < spoiled.a.size() ? spoiled.a[i] : spoiled.lambda;
      x = FlipBit(x, bit);
      const absl::StatusOr<OptimalityBounds> bounds = made.Prove(&spoiled);
      if (!bounds.ok()) {
        EXPECT_THAT(bounds.status(),
                    StatusIs(absl::StatusCode::kInvalidArgument,
                             i < spoiled.a.size() ? "witness.a" : "witness.lambda"));
        ++refused;
        continue;
      }
      // Proved or not, nothing may fall below what the whole witness leaves of the true deviation.
      EXPECT_GE(bounds->alpha_bound * 1.01, whole.alpha_bound - 1e-25);
      (bounds->partition_proved ? proved : not_proved) += 1;
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(not_proved, 20);
  EXPECT_GT(proved, 100) << "the lowest bits of a low word are below the radius";
}

TEST(SvddWitnessTest, SpoiledWitnessesDoNotHideAWrongPartition) {
  // A reserve key is called margin with a tiny a, and the rest solved for: the linear system has a
  // solution, but with a < 0. Whatever is claimed instead must not be proved.
  std::mt19937_64 random(15);
  int64_t tried = 0;
  for (int trial = 0; trial < 40; ++trial) {
    const Proved made = MakeProved(KeyKind::kGaussian, 16, 4.5, 100 + static_cast<uint64_t>(trial));
    Proved wrong = made;
    const auto reserve = std::find(wrong.solution.classes.begin(), wrong.solution.classes.end(),
                                   Partition::kReserve);
    if (reserve == wrong.solution.classes.end()) continue;
    ++tried;
    const auto row = static_cast<size_t>(reserve - wrong.solution.classes.begin());
    *reserve = Partition::kMargin;
    wrong.solution.a[row] = 0x1.0p-40;
    EXPECT_FALSE(RefineWitness(wrong.params, wrong.keys,
                               {wrong.solution.classes, wrong.solution.a, 0.0, nullptr})
                     .has_value());
    size_t place = 0;
    for (size_t i = 0; i < row; ++i) {
      place += wrong.solution.classes[i] == Partition::kMargin ? 1 : 0;
    }
    for (const double claimed : {0x1.0p-1074, 0x1.0p-300, 0x1.0p-40, 0.5}) {
      Witness witness = made.witness;
      witness.a.insert(witness.a.begin() + static_cast<std::ptrdiff_t>(place), claimed);
      ASSERT_OK_AND_ASSIGN(const OptimalityBounds bounds, wrong.Prove(&witness));
      EXPECT_FALSE(bounds.partition_proved) << claimed;
    }
  }
  EXPECT_GT(tried, 20);
}

TEST(SvddWitnessTest, SwappedValuesAndOthersWitnessesProveNothing) {
  const Proved made = MakeProved(KeyKind::kGaussian, 20, 5.5, 16);
  ASSERT_GE(made.witness.a.size(), 3u);
  Witness swapped = made.witness;
  std::swap(swapped.a[0], swapped.a[1]);
  ASSERT_OK_AND_ASSIGN(OptimalityBounds bounds, made.Prove(&swapped));
  EXPECT_FALSE(bounds.partition_proved);
  // The same keys but one component of one key, in its last bit.
  Proved moved = made;
  const auto margin =
      std::find(moved.solution.classes.begin(), moved.solution.classes.end(), Partition::kMargin);
  const auto row = static_cast<size_t>(margin - moved.solution.classes.begin());
  moved.keys[row * 3] = std::nextafter(moved.keys[row * 3], 10.0);
  ASSERT_OK_AND_ASSIGN(bounds, moved.Prove(&made.witness));
  const OptimalityBounds from_moved = bounds;
  ASSERT_OK_AND_ASSIGN(bounds, made.Prove(&made.witness));
  // It is no longer exact: a radius that is that of the key's change, not below it.
  EXPECT_GT(from_moved.alpha_bound, bounds.alpha_bound);
  // Another memory with a margin set of equal size.
  for (uint64_t seed = 200;; ++seed) {
    const Proved other = MakeProved(KeyKind::kGaussian, 20, 5.5, seed);
    if (other.witness.a.size() != made.witness.a.size()) continue;
    ASSERT_OK_AND_ASSIGN(bounds, made.Prove(&other.witness));
    EXPECT_FALSE(bounds.partition_proved);
    break;
  }
}

TEST(SvddWitnessTest, MalformedWitnessesAreRefusedByName) {
  const Proved made = MakeProved(KeyKind::kGaussian, 20, 5.5, 17);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto with = [&](auto change) {
    Witness witness = made.witness;
    change(&witness);
    return made.Prove(&witness).status();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_OK(with([](Witness*) {}));
  EXPECT_THAT(with([](Witness* w) { w->a.pop_back(); }), StatusIs(invalid, "witness.a: one per"));
  EXPECT_THAT(with([](Witness* w) { w->a.push_back(0.5); }),
              StatusIs(invalid, "witness.a: one per"));
  EXPECT_THAT(with([](Witness* w) { w->a.clear(); }), StatusIs(invalid, "witness.a: one per"));
  for (const DoubleDouble& bad :
       {DoubleDouble(nan), DoubleDouble(0.5, nan), DoubleDouble(infinity), DoubleDouble(-infinity),
        DoubleDouble(1e300), DoubleDouble(0.0), DoubleDouble(-0.25), DoubleDouble(1.0),
        DoubleDouble(1.0, 0x1.0p-60), DoubleDouble(0.5, 0.25), DoubleDouble(0.5, infinity),
        DoubleDouble(0.0, -0x1.0p-900)}) {
    EXPECT_THAT(with([&](Witness* w) { w->a[1] = bad; }), StatusIs(invalid, "witness.a is"))
        << bad.hi << " " << bad.lo;
  }
  for (const DoubleDouble& bad : {DoubleDouble(nan), DoubleDouble(infinity), DoubleDouble(-1.0),
                                  DoubleDouble(1e9), DoubleDouble(2.0, 1.0)}) {
    EXPECT_THAT(with([&](Witness* w) { w->lambda = bad; }), StatusIs(invalid, "witness.lambda"));
  }
  EXPECT_OK(with([](Witness* w) { w->a[1] = DoubleDouble(1.0, -0x1.0p-60); }));
}

TEST(SvddWitnessTest, NoneIsMadeOrTakenWhereNoneIsNeeded) {
  const std::vector<double> keys = {0.0, 0.5, 3.0, 3.5};
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const Witness any{1.0, {0.5}};
  {  // n <= M: alpha = 1/n, exactly.
    const Params params = MakeParamsOrDie(1.0, 4.0, 0x1.0p-11, 1);
    ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, keys));
    const ReportedSolution reported{solution.classes, solution.a, solution.rho, nullptr};
    EXPECT_FALSE(RefineWitness(params, keys, reported).has_value());
    ASSERT_OK_AND_ASSIGN(const OptimalityBounds bounds, ProveOptimality(params, keys, reported));
    EXPECT_TRUE(bounds.partition_proved);
    EXPECT_EQ(bounds.weight_ratio_bound, 0.0);
    EXPECT_EQ(bounds.kernel_sum_bound, 0.0);
    EXPECT_THAT(ProveOptimality(params, keys, {solution.classes, solution.a, solution.rho, &any}),
                StatusIs(invalid, "witness: none"));
    // Another a is no optimum: the one feasible point is known, the reported partition is not it.
    std::vector<double> a = solution.a;
    std::vector<Partition> classes = solution.classes;
    a[1] = 0.5;
    classes[1] = Partition::kMargin;
    ASSERT_OK_AND_ASSIGN(const OptimalityBounds off,
                         ProveOptimality(params, keys, {classes, a, solution.rho, nullptr}));
    EXPECT_FALSE(off.partition_proved);
    EXPECT_GE(off.kernel_sum_bound, 0.125 * std::exp(-9.0));
    EXPECT_GE(off.alpha_bound, 0.125);
  }
  {  // Two pairs far from each other, one key of each taken: S is empty.
    const std::vector<double> far = {0.0, 100.0, 0.1, 100.1};
    const std::vector<Partition> classes = {Partition::kError, Partition::kError,
                                            Partition::kReserve, Partition::kReserve};
    // Every key has a = 1/2 at the optimum of this one: a partition that is not to be proved.
    const Params params = MakeParamsOrDie(1.0, 2.0, 0x1.0p-11, 1);
    const std::vector<double> a = {1.0, 1.0, 0.0, 0.0};
    ASSERT_OK_AND_ASSIGN(const OptimalityBounds bounds,
                         ProveOptimality(params, far, {classes, a, 0.0, nullptr}));
    EXPECT_FALSE(bounds.partition_proved);
    EXPECT_THAT(ProveOptimality(params, far, {classes, a, 0.0, &any}),
                StatusIs(invalid, "witness: none"));
  }
}

TEST(SvddWitnessTest, EmptyMarginsAreProvedByTheirSigns) {
  // Triples far from each other: the two ends of each take all of the mass, the key between is inside.
  int64_t found = 0;
  std::mt19937_64 random(18);
  std::uniform_real_distribution<double> uniform(-0.02, 0.02);
  for (int trial = 0; trial < 12; ++trial) {
    const int triples = 1 + trial % 3;
    const Params params = MakeParamsOrDie(1.0, 2.0 * triples, 0x1.0p-11, 2);
    std::vector<double> keys;
    for (int k = 0; k < triples; ++k) {
      for (const double end : {-0.45, 0.0, 0.45}) {
        keys.push_back(end + 50.0 * k + uniform(random));
        keys.push_back(uniform(random));
      }
    }
    ASSERT_OK_AND_ASSIGN(const Solution solution, SolveCanonical(params, keys));
    if (std::count(solution.classes.begin(), solution.classes.end(), Partition::kMargin) > 0) {
      continue;
    }
    ++found;
    const ReportedSolution reported{solution.classes, solution.a, solution.rho, nullptr};
    EXPECT_FALSE(RefineWitness(params, keys, reported).has_value());
    ASSERT_OK_AND_ASSIGN(const OptimalityBounds bounds, ProveOptimality(params, keys, reported));
    EXPECT_TRUE(bounds.partition_proved);
    EXPECT_EQ(bounds.kernel_sum_bound, 0.0);
    EXPECT_LT(bounds.rho_bound, 1e-15);
    // One more or one less in E is not the mass.
    std::vector<Partition> classes = solution.classes;
    std::vector<double> a = solution.a;
    const auto error = std::find(classes.begin(), classes.end(), Partition::kError);
    a[static_cast<size_t>(error - classes.begin())] = 0.0;
    *error = Partition::kReserve;
    ASSERT_OK_AND_ASSIGN(const OptimalityBounds less,
                         ProveOptimality(params, keys, {classes, a, solution.rho, nullptr}));
    EXPECT_FALSE(less.partition_proved);
  }
  EXPECT_GE(found, 4);
}

TEST(SvddWitnessTest, CopiesInTwoClassesAreNeverProved) {
  const Params params = MakeParamsOrDie(1.3, 2.5, 0x1.0p-11, 1);
  // The middle key twice: one copy with all the weight of both.
  const std::vector<double> keys = {-1.0, 0.4, 0.4, 2.0, 0.1};
  ASSERT_OK_AND_ASSIGN(Solution solution, SolveCanonical(params, keys));
  ASSERT_EQ(solution.classes[1], solution.classes[2]);
  ASSERT_EQ(solution.a[1], solution.a[2]);
  const std::vector<Partition> classes = solution.classes;
  const std::optional<Witness> uniform =
      RefineWitness(params, keys, {solution.classes, solution.a, solution.rho, nullptr});
  ASSERT_TRUE(uniform.has_value());
  int64_t num_forged = 0;
  for (const Partition place : {Partition::kReserve, Partition::kMargin, Partition::kError}) {
    if (place == classes[1]) continue;
    Solution split = solution;
    split.classes[2] = place;
    split.a[2] = place == Partition::kReserve ? 0.0 : place == Partition::kError ? 1.0 : 0.5;
    const ReportedSolution reported{split.classes, split.a, split.rho, nullptr};
    EXPECT_FALSE(RefineWitness(params, keys, reported).has_value());
    ASSERT_OK_AND_ASSIGN(const OptimalityBounds bounds, ProveOptimality(params, keys, reported));
    EXPECT_FALSE(bounds.partition_proved);
    // The true optimum's witness proves nothing about classes that are not its.
    const absl::StatusOr<OptimalityBounds> forged =
        ProveOptimality(params, keys, {split.classes, split.a, split.rho, &*uniform});
    if (!forged.ok()) continue;
    ++num_forged;
    EXPECT_FALSE(forged->partition_proved);
  }
  EXPECT_GE(num_forged, 1);
}

TEST(SvddEnclosureTest, RadiiFollowTheirFormulas) {
  // Two copies of one margin key with K = 1: 2(2 a + ridge a) = lambda, 2a = 1.
  EnclosureInput input;
  input.mass = 1.0;
  input.ridge = 0.25;
  input.lambda = 2.25;
  input.rows = {{Partition::kMargin, 2.0, 0.5, 1.0}};
  const Enclosure exact = EncloseOptimum(input);
  EXPECT_TRUE(exact.proved);
  EXPECT_LT(exact.radius, 1e-27);
  EXPECT_EQ(exact.copies, 2.0);
  // r0 = 2 * 2^-10: along = r0/sqrt(2), across = (|r1| + 2 s (1 + ridge) along)/(2 ridge).
  input.rows[0].a = 0.5 - 0x1.0p-10;
  input.rows[0].sum = 1.0 - 0x1.0p-9;
  const Enclosure off = EncloseOptimum(input);
  const double along = 0x1.0p-9 / std::sqrt(2.0);
  const double residual = std::sqrt(2.0) * 2.0 * (0x1.0p-9 + 0.25 * 0x1.0p-10);
  const double radius = along + (residual + 4.0 * 1.25 * along) / 0.5;
  EXPECT_NEAR(off.radius, radius, 1e-12);
  EXPECT_GE(off.radius, 0x1.0p-10 * std::sqrt(2.0)) << "the true distance";
  EXPECT_NEAR(off.lambda_radius, residual / std::sqrt(2.0) + 2.0 * std::sqrt(2.0) * 1.25 * radius,
              1e-12);
  // A row whose sign is inside its error is not strict; one outside is.
  input.rows[0].a = 0.5;
  input.rows[0].sum = 1.0;
  input.rows.push_back({Partition::kReserve, 1.0, 0.0, 1.125});
  EXPECT_FALSE(EncloseOptimum(input).proved);
  input.rows[1].sum = DoubleDouble(1.125, 0x1.0p-80);
  EXPECT_TRUE(EncloseOptimum(input).proved);
  input.sum_error = 0x1.0p-70;
  EXPECT_FALSE(EncloseOptimum(input).proved);
}

}  // namespace
}  // namespace lethe::svdd
