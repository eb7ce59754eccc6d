#include "memory/svdd/svdd_ref.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "kernels/gram/gram.h"
#include "memory/svdd/active_set_ref.h"

namespace lethe::svdd {

RefSolution SolveRef(const Params& params, absl::Span<const double> keys) {
  using Real = long double;
  const size_t dim = static_cast<size_t>(params.key_dim);
  const size_t n = keys.size() / dim;
  ActiveSetRef<Real>::Matrix twice_gram(n);
  std::vector<double> row(n);
  for (size_t i = 0; i < n; ++i) {
    GramRow(keys.subspan(i * dim, dim), keys, params.sigma, absl::MakeSpan(row));
    for (size_t j = 0; j < n; ++j) {
      const Real ridge = i == j ? static_cast<Real>(params.ridge) : 0.0L;
      twice_gram[i].push_back(2.0L * (static_cast<Real>(row[j]) + ridge));
    }
  }
  RefSolution result;
  result.mass = std::min(params.box_mass, static_cast<double>(n));
  ActiveSetRef<Real> solver(std::move(twice_gram), static_cast<Real>(result.mass), 1e-15L);
  result.converged = solver.Run();
  result.a = solver.a();
  // rho is the ceil(m)-th largest h, so lambda the ceil(m)-th smallest gradient.
  result.lambda = solver.GradientOfRank(static_cast<size_t>(std::ceil(result.mass)));
  result.rho = 1.0L - result.lambda / static_cast<Real>(result.mass);
  return result;
}

namespace {

// Adds the weighted values of the tokens [begin, end) to out, the weights made relative to the largest
// logit; returns the sum of the weights and, in *ungated, what it is without gates.
double AddReads(absl::Span<const double> logits, absl::Span<const double> gate, double largest,
                absl::Span<const float> values, size_t begin, size_t end, std::vector<double>* out,
                double* ungated) {
  double total = 0.0;
  *ungated = 0.0;
  for (size_t i = begin; i < end; ++i) {
    const double plain = std::exp(logits[i] - largest);
    const double weight = plain * (i < gate.size() ? gate[i] : 1.0);
    total += weight;
    *ungated += plain;
    for (size_t c = 0; c < out->size(); ++c) {
      (*out)[c] += weight * static_cast<double>(values[i * out->size() + c]);
    }
  }
  return total;
}

}  // namespace

std::vector<double> ReadRef(double beta, absl::Span<const float> q, absl::Span<const float> keys,
                            absl::Span<const float> values, absl::Span<const double> gate,
                            bool prefix_mass) {
  const size_t key_dim = q.size();
  const size_t t = keys.size() / key_dim;
  std::vector<double> logits(t);
  double largest = -1e300;
  for (size_t i = 0; i < t; ++i) {
    double dot = 0.0;
    for (size_t c = 0; c < key_dim; ++c) {
      dot += static_cast<double>(q[c]) * static_cast<double>(keys[i * key_dim + c]);
    }
    logits[i] = beta * std::sqrt(static_cast<double>(key_dim)) * dot;
    largest = std::max(largest, logits[i]);
  }
  std::vector<double> out(values.size() / t, 0.0);
  double ungated = 0.0;
  double total = AddReads(logits, gate, largest, values, 0, gate.size(), &out, &ungated);
  if (prefix_mass && !gate.empty()) {
    for (double& x : out) x *= ungated / total;
    total = ungated;
  }
  total += AddReads(logits, gate, largest, values, gate.size(), t, &out, &ungated);
  for (double& x : out) x /= total;
  return out;
}

}  // namespace lethe::svdd
