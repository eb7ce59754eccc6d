#include "tests/memory/svdd_exact.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "memory/svdd/active_set_ref.h"

namespace lethe::svdd {
namespace {

ExactQuery MakeQuery(const ExactCase& c, size_t trial, std::mt19937_64* random) {
  const auto dim = static_cast<size_t>(c.params.key_dim);
  std::normal_distribution<double> normal;
  const absl::Span<const double> near = c.Key(trial % c.n());
  std::vector<double> query(near.begin(), near.end());
  // The first query is a key; the others move off, to half a dozen widths.
  const double away = static_cast<double>(trial) * static_cast<double>(trial) * 0.15;
  for (double& x : query) x += away * c.params.sigma * normal(*random);
  ExactQuery made;
  const auto exponential_of_dot = [&](const auto& key) {
    Wide dot = 0;
    for (size_t k = 0; k < dim; ++k) dot += Wide(query[k]) * Wide(key(k));
    return exp(Wide(dot / sqrt(Wide(dim))));
  };
  for (size_t i = 0; i < c.n(); ++i) {
    made.kernel.push_back(ExactKernel(query, c.Key(i), c.params.sigma));
    made.hybrid.push_back(exponential_of_dot([&](size_t k) { return c.Key(i)[k]; }));
  }
  for (size_t l = 0; l < ExactCase::kLocal; ++l) {
    made.local.push_back(exponential_of_dot([&](size_t) { return 0.3 * normal(*random); }));
  }
  return made;
}

void Solve(ExactCase* c) {
  const size_t n = c->n();
  std::vector<std::vector<Wide>> twice_gram(n, std::vector<Wide>(n));
  for (size_t i = 0; i < n; ++i) {
    twice_gram[i][i] = 2 * (1 + Wide(c->params.ridge));
    for (size_t j = 0; j < i; ++j) {
      twice_gram[i][j] = twice_gram[j][i] = 2 * ExactKernel(c->Key(i), c->Key(j), c->params.sigma);
    }
  }
  const double mass = Mass(c->params, static_cast<int64_t>(n));
  ActiveSetRef<Wide> solver(std::move(twice_gram), Wide(mass), Wide(1e-60));
  c->solved = solver.Run();
  c->mass = mass;
  c->a = solver.a();
  c->rho = 1 - solver.GradientOfRank(static_cast<size_t>(std::ceil(mass))) / Wide(mass);
  for (const Wide& a : c->a) {
    c->classes.push_back(a == 0   ? Partition::kReserve
                         : a == 1 ? Partition::kError
                                  : Partition::kMargin);
  }
}

// Coordinate c of the readout with gates a; a weight of 0 everywhere reads 0.
template <typename Gate>
Wide Readout(const ExactCase& of, const std::vector<Wide>& weights, const std::vector<Wide>& local,
             const Gate& a, size_t coordinate) {
  Wide top = 0;
  Wide bottom = 0;
  const auto dim = static_cast<size_t>(ExactCase::kValueDim);
  for (size_t i = 0; i < weights.size(); ++i) {
    const Wide weight = a(i) * weights[i];
    top += weight * Wide(of.values[i * dim + coordinate]);
    bottom += weight;
  }
  for (size_t l = 0; l < local.size(); ++l) {
    top += local[l] * Wide(of.local_values[l * dim + coordinate]);
    bottom += local[l];
  }
  return bottom == 0 ? Wide(0) : Wide(top / bottom);
}

}  // namespace

Wide ToWide(const DoubleDouble& x) { return Wide(x.hi) + Wide(x.lo); }

Wide ExactKernel(absl::Span<const double> x, absl::Span<const double> y, double sigma) {
  Wide sum = 0;
  for (size_t c = 0; c < x.size(); ++c) {
    const Wide difference = Wide(x[c]) - Wide(y[c]);
    sum += difference * difference;
  }
  return exp(Wide(-sum / (Wide(sigma) * Wide(sigma))));
}

ExactCase MakeExactCase(const Params& params, std::vector<double> keys, size_t num_queries,
                        std::mt19937_64* random) {
  ExactCase c;
  c.params = params;
  c.keys = std::move(keys);
  Solve(&c);
  std::normal_distribution<double> normal;
  for (size_t i = 0; i < c.n() * ExactCase::kValueDim; ++i) c.values.push_back(normal(*random));
  for (size_t i = 0; i < ExactCase::kLocal * ExactCase::kValueDim; ++i) {
    c.local_values.push_back(normal(*random));
  }
  for (size_t trial = 0; trial < num_queries; ++trial) {
    c.queries.push_back(MakeQuery(c, trial, random));
  }
  return c;
}

Deviations DeviationsOf(const ExactCase& c, absl::Span<const double> a, double rho) {
  Deviations d;
  std::vector<Wide> change(c.n());
  for (size_t i = 0; i < c.n(); ++i) {
    change[i] = (Wide(a[i]) - c.a[i]) / c.mass;
    d.alpha = std::max<Wide>(d.alpha, abs(change[i]));
  }
  const Wide rho_change = Wide(rho) - c.rho;
  d.rho = abs(rho_change);
  const auto reported = [&](size_t i) { return Wide(a[i]); };
  const auto optimal = [&](size_t i) { return c.a[i]; };
  for (const ExactQuery& query : c.queries) {
    Wide sum = 0;
    for (size_t i = 0; i < c.n(); ++i) sum += change[i] * query.kernel[i];
    d.kernel_sum = std::max<Wide>(d.kernel_sum, abs(sum));
    d.decision = std::max<Wide>(d.decision, abs(Wide(rho_change + 2 * sum)));
    d.rbf.push_back(0);
    d.hybrid.push_back(0);
    for (size_t v = 0; v < static_cast<size_t>(ExactCase::kValueDim); ++v) {
      const Wide rbf =
          Readout(c, query.kernel, {}, reported, v) - Readout(c, query.kernel, {}, optimal, v);
      const Wide hybrid = Readout(c, query.hybrid, query.local, reported, v) -
                          Readout(c, query.hybrid, query.local, optimal, v);
      d.rbf.back() = std::max<Wide>(d.rbf.back(), abs(rbf));
      d.hybrid.back() = std::max<Wide>(d.hybrid.back(), abs(hybrid));
    }
    d.readout_rbf = std::max(d.readout_rbf, d.rbf.back());
    d.readout_hybrid = std::max(d.readout_hybrid, d.hybrid.back());
  }
  return d;
}

}  // namespace lethe::svdd
