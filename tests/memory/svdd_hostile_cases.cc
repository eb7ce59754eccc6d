#include "tests/memory/svdd_hostile_cases.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/types/span.h"

#include "memory/svdd/canonical.h"
#include "tests/memory/svdd_testing.h"

namespace lethe::svdd {
namespace {

constexpr double kRidge = 0x1.0p-11;
constexpr double kSmallRidge = 1e-8;  // the least there is

double Normal(std::mt19937_64* random) {
  std::normal_distribution<double> normal;
  return normal(*random);
}

int64_t Below(int64_t end, std::mt19937_64* random) {
  return static_cast<int64_t>((*random)() % static_cast<uint64_t>(end));
}

// One in three has the least ridge, one in two an integer mass.
DeletionCase Case(int64_t trial, double sigma, double box_mass, int64_t dim,
                  std::vector<double> keys) {
  DeletionCase made;
  made.params = MakeParamsOrDie(sigma, trial % 2 == 0 ? std::floor(box_mass) : box_mass,
                                trial % 3 == 0 ? kSmallRidge : kRidge, dim);
  made.keys = std::move(keys);
  made.count = 5;
  return made;
}

DeletionCase OfKind(KeyKind kind, int64_t trial, std::mt19937_64* random) {
  const int64_t n = 24 + trial % 20;
  const int64_t dim = 1 + trial % 5;
  return Case(trial, trial % 4 == 0 ? 0.5 : 1.3, 0.3 * static_cast<double>(n) + 0.37, dim,
              MakeKeys(kind, n, dim, random));
}

// M where the partition of the list without one key changes, and that key.
struct Change {
  std::vector<double> keys;
  double box_mass = 0.0;
  double ridge = 0.0;
  int64_t rank = 0;
};

constexpr double kTunedSigma = 1.2;
constexpr int64_t kTunedDim = 2;

Change BisectedChange(int64_t list) {
  std::mt19937_64 random(static_cast<uint64_t>(1000 + list));
  constexpr KeyKind kinds[] = {KeyKind::kGaussian, KeyKind::kNearDuplicates8, KeyKind::kCollinear,
                               KeyKind::kClusters, KeyKind::kFewKeys,         KeyKind::kGrid};
  Change change;
  change.ridge = list % 2 == 0 ? kSmallRidge : kRidge;
  const KeyKind kind = kinds[static_cast<size_t>(list / 2) % 6];
  while (true) {
    change.keys = MakeKeys(kind, 25, kTunedDim, &random);
    change.rank = Below(25, &random);
    const Params params = MakeParamsOrDie(kTunedSigma, 4.0, change.ridge, kTunedDim);
    change.box_mass =
        BisectedMass(params, WithoutKeys(change.keys, kTunedDim, {change.rank}), 3.3, 9.7);
    if (change.box_mass > 0.0) return change;
  }
}

DeletionCase NextToAChange(int64_t trial, std::mt19937_64* /*random*/) {
  constexpr double offsets[] = {0.0,   1e-12, -1e-12, 1e-11, 1e-10, -1e-10, 3e-10,
                                -1e-9, 2e-9,  1e-8,   -1e-8, 1e-7,  1e-6};
  constexpr auto kNumOffsets = static_cast<int64_t>(std::size(offsets));
  const Change change = BisectedChange(trial / kNumOffsets);
  DeletionCase made;
  made.params = MakeParamsOrDie(kTunedSigma,
                                change.box_mass + offsets[static_cast<size_t>(trial % kNumOffsets)],
                                change.ridge, kTunedDim);
  made.keys = change.keys;
  made.first_rank = change.rank;
  return made;
}

DeletionCase ExactDuplicates(int64_t trial, std::mt19937_64* random) {
  return OfKind(trial % 2 == 0 ? KeyKind::kDuplicates : KeyKind::kFewKeys, trial, random);
}

DeletionCase NearDuplicates(int64_t trial, std::mt19937_64* random) {
  constexpr KeyKind kinds[] = {KeyKind::kNearDuplicates6, KeyKind::kNearDuplicates8,
                               KeyKind::kNearDuplicates10, KeyKind::kNearDuplicates12};
  return OfKind(kinds[static_cast<size_t>(trial % 4)], trial, random);
}

DeletionCase AcrossTheMass(int64_t trial, std::mt19937_64* random) {
  const double box_mass = trial % 2 == 0 ? 7.0 : 7.4;
  DeletionCase made =
      Case(trial, 1.1, box_mass, 3,
           MakeKeys(trial % 3 == 0 ? KeyKind::kDuplicates : KeyKind::kUnitSphere, 10, 3, random));
  made.plan = DeletionPlan::kAroundMass;
  made.count = 30;
  return made;
}

// Equal steps along a line, or random ones along a line that no coordinate follows.
DeletionCase Collinear(int64_t trial, std::mt19937_64* random) {
  if (trial % 2 == 0) return OfKind(KeyKind::kCollinear, trial, random);
  std::vector<double> keys;
  for (int64_t i = 0; i < 36; ++i) {
    const double at = Normal(random);
    for (const double direction : {1.0, -0.3, 0.7}) keys.push_back(direction * at);
  }
  return Case(trial, 0.9, 11.3, 3, std::move(keys));
}

// On a sphere, or evenly on a circle: every key is a mirror image of others.
DeletionCase OnASphere(int64_t trial, std::mt19937_64* random) {
  if (trial % 2 == 0) return OfKind(KeyKind::kUnitSphere, trial, random);
  std::vector<double> keys;
  const int64_t n = 20 + trial % 16;
  for (int64_t i = 0; i < n; ++i) {
    const double angle = 2.0 * M_PI * static_cast<double>(i) / static_cast<double>(n);
    keys.push_back(std::cos(angle));
    keys.push_back(std::sin(angle));
  }
  return Case(trial, 1.0, 0.35 * static_cast<double>(n), 2, std::move(keys));
}

DeletionCase ExtremeSigma(int64_t trial, std::mt19937_64* random) {
  constexpr double sigmas[] = {0x1.0p-20, 1e-3, 1e3, 0x1.0p20};
  constexpr KeyKind kinds[] = {KeyKind::kGaussian, KeyKind::kUnitSphere, KeyKind::kCollinear,
                               KeyKind::kDuplicates, KeyKind::kNearDuplicates6};
  return Case(trial / 4, sigmas[static_cast<size_t>(trial % 4)], 9.3, 3,
              MakeKeys(kinds[static_cast<size_t>(trial / 4 % 5)], 30, 3, random));
}

// From a little above M to below it.
DeletionCase AtTheMass(int64_t trial, std::mt19937_64* random) {
  const int64_t n = 10 + trial % 6;
  return Case(trial, 1.2, static_cast<double>(n) - 1.6, 2,
              MakeKeys(trial % 3 == 0 ? KeyKind::kFewKeys : KeyKind::kGaussian, n, 2, random));
}

DeletionCase EverythingInError(int64_t trial, std::mt19937_64* random) {
  const int64_t n = 6 + trial % 20;
  DeletionCase made = OfKind(KeyKind::kGaussian, trial, random);
  made.keys.resize(static_cast<size_t>(n * made.params.key_dim));
  made.params = MakeParamsOrDie(1.3, static_cast<double>(n + trial % 2), made.params.ridge,
                                made.params.key_dim);
  return made;
}

// A wide kernel and an integer M: whole keys alone.
DeletionCase EmptyMargin(int64_t trial, std::mt19937_64* random) {
  while (true) {
    const int64_t n = 7 + Below(12, random);
    DeletionCase made = Case(2 * trial, 4.0, static_cast<double>(2 + trial % 5), 1 + trial % 2,
                             MakeKeys(KeyKind::kGaussian, n, 1 + trial % 2, random));
    const absl::StatusOr<Solution> solved = SolveCanonical(made.params, made.keys);
    const std::vector<Partition>& classes = solved->classes;
    if (std::count(classes.begin(), classes.end(), Partition::kMargin) > 0) continue;
    made.first_rank =
        std::find(classes.begin(), classes.end(), Partition::kError) - classes.begin();
    made.count = 2;
    return made;
  }
}

DeletionCase DownToOneKey(int64_t trial, std::mt19937_64* random) {
  DeletionCase made =
      OfKind(kAllKinds[static_cast<size_t>(trial) % std::size(kAllKinds)], trial, random);
  made.plan = DeletionPlan::kDownToOne;
  return made;
}

DeletionCase AllAndAgain(int64_t trial, std::mt19937_64* random) {
  DeletionCase made = DownToOneKey(trial, random);
  made.keys.resize(static_cast<size_t>(16 * made.params.key_dim));
  made.params.box_mass = trial % 2 == 0 ? 5.0 : 4.7;
  made.plan = DeletionPlan::kAllAndAgain;
  return made;
}

// Nine in ten are copies of one of ten keys.
DeletionCase CopiesOfTen(int64_t trial, std::mt19937_64* random) {
  const int64_t n = 100;
  const int64_t dim = 4;
  std::vector<double> keys = MakeKeys(KeyKind::kGaussian, n, dim, random);
  for (int64_t i = 10; i < n; ++i) {
    if (Below(10, random) == 0) continue;
    std::copy_n(keys.begin() + Below(10, random) * dim, dim, keys.begin() + i * dim);
  }
  return Case(trial, 1.5, trial % 4 < 2 ? 30.6 : 8.3, dim, std::move(keys));
}

DeletionCase PaperGaussian(int64_t /*trial*/, std::mt19937_64* random) {
  std::vector<double> keys;
  for (int i = 0; i < 24 * 6; ++i) keys.push_back(Normal(random));
  return PaperCase(std::move(keys), 6);
}

// Four centres, six copies of each, moved a little.
DeletionCase PaperRedundant(int64_t /*trial*/, std::mt19937_64* random) {
  std::vector<double> keys;
  for (int centre = 0; centre < 4; ++centre) {
    std::vector<double> at(6);
    for (double& x : at) x = 2.0 * Normal(random);
    for (int copy = 0; copy < 6; ++copy) {
      for (const double x : at) keys.push_back(x + 0.02 * Normal(random));
    }
  }
  return PaperCase(std::move(keys), 6);
}

// Six autoregressive channels over forty hours with rare excursions, near repeats left out.
DeletionCase SyntheticVitals(int64_t /*trial*/, std::mt19937_64* random) {
  std::vector<double> keys;
  std::vector<double> now(6, 0.0);
  for (int hour = 0; hour < 40; ++hour) {
    const bool excursion = Below(20, random) == 0;
    for (double& x : now) x = 0.9 * x + 0.4 * Normal(random);
    for (const double x : now) keys.push_back(excursion ? x + 2.5 : x);
  }
  return PaperCase(WithoutNear(keys, 6, 0.1), 6);
}

}  // namespace

double BisectedMass(const Params& params, const std::vector<double>& keys, double low,
                    double high) {
  const auto classes = [&](double box_mass) {
    return SolveCanonical(MakeParamsOrDie(params.sigma, box_mass, params.ridge, params.key_dim),
                          keys)
        ->classes;
  };
  const std::vector<Partition> at_low = classes(low);
  if (classes(high) == at_low) return -1.0;
  for (double middle = 0.5 * (low + high); middle != low && middle != high;
       middle = 0.5 * (low + high)) {
    (classes(middle) == at_low ? low : high) = middle;
  }
  return low;
}

DeletionCase PaperCase(std::vector<double> keys, int64_t dim) {
  DeletionCase made;
  const double n = static_cast<double>(keys.size()) / static_cast<double>(dim);
  made.params = MakeParamsOrDie(2.0, std::max(1.0, 0.4 * n), kRidge, dim);
  made.keys = std::move(keys);
  made.count = 2;
  return made;
}

std::vector<double> WithoutNear(const std::vector<double>& keys, int64_t dim, double distance) {
  std::vector<double> kept;
  for (auto key = keys.begin(); key != keys.end(); key += dim) {
    bool is_near = false;
    for (auto other = kept.begin(); other != kept.end() && !is_near; other += dim) {
      double square = 0.0;
      for (int64_t c = 0; c < dim; ++c) square += (key[c] - other[c]) * (key[c] - other[c]);
      is_near = square < distance * distance;
    }
    if (!is_near) kept.insert(kept.end(), key, key + dim);
  }
  return kept;
}

std::vector<HostileKind> HostileKinds() {
  return {{"1/C next to a change", 312, NextToAChange},
          {"exact duplicates", 62, ExactDuplicates},
          {"near duplicates", 64, NearDuplicates},
          {"n across 1/C", 12, AcrossTheMass},
          {"collinear", 62, Collinear},
          {"on a sphere", 62, OnASphere},
          {"sigma 2^-20 to 2^20", 64, ExtremeSigma},
          {"n at and below 1/C", 64, AtTheMass},
          {"everything in E", 64, EverythingInError},
          {"empty margin", 152, EmptyMargin},
          {"down to one key", 26, DownToOneKey},
          {"all, and again", 13, AllAndAgain},
          {"copies of ten", 64, CopiesOfTen},
          {"paper: gaussian", 150, PaperGaussian},
          {"paper: redundant", 150, PaperRedundant},
          {"paper: vitals, made", 150, SyntheticVitals}};
}

}  // namespace lethe::svdd
