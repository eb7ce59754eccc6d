#include "tests/memory/svdd_testing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>

#include "kernels/gram/gram.h"

namespace lethe::svdd {
namespace {

size_t At(int64_t i) { return static_cast<size_t>(i); }

std::vector<double> Gaussian(int64_t count, double scale, std::mt19937_64* random) {
  std::normal_distribution<double> normal;
  std::vector<double> values(At(count));
  for (double& x : values) x = scale * normal(*random);
  return values;
}

// Some of the keys become copies of earlier ones, moved by `distance`.
std::vector<double> WithCopies(int64_t num_keys, int64_t dim, double distance,
                               std::mt19937_64* random) {
  std::vector<double> keys = Gaussian(num_keys * dim, 0.7, random);
  for (int64_t i = 1; i < num_keys; ++i) {
    if ((*random)() % 5 < 2) continue;
    const auto from = static_cast<int64_t>((*random)() % static_cast<uint64_t>(i));
    const std::vector<double> shift = Gaussian(dim, distance, random);
    for (int64_t c = 0; c < dim; ++c)
      keys[At(i * dim + c)] = keys[At(from * dim + c)] + shift[At(c)];
  }
  return keys;
}

std::vector<double> Sphere(int64_t num_keys, int64_t dim, std::mt19937_64* random) {
  std::vector<double> keys = Gaussian(num_keys * dim, 1.0, random);
  for (int64_t i = 0; i < num_keys; ++i) {
    double norm = 1e-300;
    for (int64_t c = 0; c < dim; ++c) norm += keys[At(i * dim + c)] * keys[At(i * dim + c)];
    for (int64_t c = 0; c < dim; ++c) keys[At(i * dim + c)] /= std::sqrt(norm);
  }
  return keys;
}

std::vector<double> Clusters(int64_t num_keys, int64_t dim, double spread, double distance,
                             int64_t size, std::mt19937_64* random) {
  const int64_t num_clusters = num_keys / size + 1;
  const std::vector<double> centres = Gaussian(num_clusters * dim, distance, random);
  std::vector<double> keys = Gaussian(num_keys * dim, spread, random);
  for (int64_t i = 0; i < num_keys; ++i) {
    for (int64_t c = 0; c < dim; ++c) keys[At(i * dim + c)] += centres[At(i / size * dim + c)];
  }
  return keys;
}

// A tenth or so are new keys; of the rest half are copies of the first, the others of any. One
// component in three is a zero, whose sign each copy draws anew.
std::vector<double> FewKeys(int64_t num_keys, int64_t dim, std::mt19937_64* random) {
  std::vector<double> keys = Gaussian(num_keys * dim, 0.7, random);
  for (double& x : keys) x = (*random)() % 3 == 0 ? 0.0 : x;
  for (int64_t i = 1; i < num_keys; ++i) {
    const bool is_new = (*random)() % 10 == 0;
    const uint64_t pick = (*random)();
    const auto from = pick % 2 == 0 ? 0 : static_cast<int64_t>(pick / 2 % static_cast<uint64_t>(i));
    for (int64_t c = 0; c < dim; ++c) {
      double& x = keys[At(i * dim + c)];
      if (!is_new) x = keys[At(from * dim + c)];
      if (x == 0.0) x = (*random)() % 2 == 0 ? 0.0 : -0.0;
    }
  }
  return keys;
}

}  // namespace

const char* KindName(KeyKind kind) {
  static constexpr const char* kNames[] = {"gaussian",
                                           "unit sphere",
                                           "clusters",
                                           "duplicates",
                                           "near duplicates 6",
                                           "near duplicates 8",
                                           "near duplicates 10",
                                           "near duplicates 12",
                                           "collinear",
                                           "grid",
                                           "plus minus unit",
                                           "separated",
                                           "few keys"};
  return kNames[static_cast<size_t>(kind)];
}

std::vector<double> MakeKeys(KeyKind kind, int64_t num_keys, int64_t dim, std::mt19937_64* random) {
  switch (kind) {
    case KeyKind::kGaussian:
      return Gaussian(num_keys * dim, 0.7, random);
    case KeyKind::kUnitSphere:
      return Sphere(num_keys, dim, random);
    case KeyKind::kClusters:
      return Clusters(num_keys, dim, 0.1, 1.5, 6, random);
    case KeyKind::kDuplicates:
      return WithCopies(num_keys, dim, 0.0, random);
    case KeyKind::kNearDuplicates6:
      return WithCopies(num_keys, dim, 1e-6, random);
    case KeyKind::kNearDuplicates8:
      return WithCopies(num_keys, dim, 1e-8, random);
    case KeyKind::kNearDuplicates10:
      return WithCopies(num_keys, dim, 1e-10, random);
    case KeyKind::kNearDuplicates12:
      return WithCopies(num_keys, dim, 1e-12, random);
    case KeyKind::kCollinear: {
      std::vector<double> keys(At(num_keys * dim));
      for (int64_t i = 0; i < num_keys; ++i) {
        for (int64_t c = 0; c < dim; ++c) {
          keys[At(i * dim + c)] = 0.05 * static_cast<double>(i) * static_cast<double>(c + 1);
        }
      }
      return keys;
    }
    case KeyKind::kGrid: {
      std::vector<double> keys(At(num_keys * dim));
      for (double& x : keys) x = 0.5 * static_cast<double>((*random)() % 3);
      return keys;
    }
    case KeyKind::kPlusMinusUnit: {
      std::vector<double> keys(At(num_keys * dim), 0.0);
      for (int64_t i = 0; i < num_keys; ++i) {
        const auto c = static_cast<int64_t>((*random)() % static_cast<uint64_t>(dim));
        keys[At(i * dim + c)] = (*random)() % 2 == 0 ? 1.0 : -1.0;
      }
      return keys;
    }
    case KeyKind::kSeparated:
      return Clusters(num_keys, dim, 0.02, 20.0, 2, random);
    case KeyKind::kFewKeys:
      return FewKeys(num_keys, dim, random);
  }
  return {};
}

Params MakeParamsOrDie(double sigma, double box_mass, double ridge, int64_t key_dim) {
  absl::StatusOr<Params> params = MakeParams(sigma, box_mass, ridge, key_dim);
  if (!params.ok()) std::abort();
  return *params;
}

double KktViolation(const Params& params, absl::Span<const double> keys, const Solution& solution) {
  using Real = long double;
  const size_t dim = At(params.key_dim);
  const size_t n = keys.size() / dim;
  const Real mass = static_cast<Real>(solution.mass);
  const Real lambda = mass * (1.0L - static_cast<Real>(solution.rho));
  Real total = -mass;
  Real worst = 0.0L;
  std::vector<double> row(n);
  for (size_t i = 0; i < n; ++i) {
    GramRow(keys.subspan(i * dim, dim), keys, params.sigma, absl::MakeSpan(row));
    Real sum = static_cast<Real>(params.ridge) * static_cast<Real>(solution.a[i]);
    for (size_t j = 0; j < n; ++j)
      sum += static_cast<Real>(row[j]) * static_cast<Real>(solution.a[j]);
    const Real excess = 2.0L * sum - lambda;
    total += static_cast<Real>(solution.a[i]);
    switch (solution.classes[i]) {
      case Partition::kMargin:
        worst = std::max(worst, std::abs(excess));
        if (!(solution.a[i] > 0.0 && solution.a[i] < 1.0)) worst = 1.0L;
        break;
      case Partition::kError:
        worst = std::max(worst, excess);
        if (solution.a[i] != 1.0) worst = 1.0L;
        break;
      case Partition::kReserve:
        worst = std::max(worst, -excess);
        if (solution.a[i] != 0.0) worst = 1.0L;
        break;
    }
  }
  return static_cast<double>(std::max(worst, std::abs(total)));
}

std::vector<double> WithoutKeys(absl::Span<const double> keys, int64_t dim,
                                const std::vector<int64_t>& ranks) {
  std::vector<double> kept;
  for (int64_t i = 0; i < static_cast<int64_t>(keys.size()) / dim; ++i) {
    if (std::binary_search(ranks.begin(), ranks.end(), i)) continue;
    const absl::Span<const double> key = keys.subspan(At(i * dim), At(dim));
    kept.insert(kept.end(), key.begin(), key.end());
  }
  return kept;
}

std::vector<int64_t> RandomRanks(int64_t count, int64_t n, std::mt19937_64* random) {
  std::vector<int64_t> ranks(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) ranks[static_cast<size_t>(i)] = i;
  std::shuffle(ranks.begin(), ranks.end(), *random);
  ranks.resize(static_cast<size_t>(count));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace lethe::svdd
