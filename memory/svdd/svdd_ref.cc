#include "memory/svdd/svdd_ref.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "kernels/gram/gram.h"

namespace lethe::svdd {
namespace {

using Real = long double;
using Matrix = std::vector<std::vector<Real>>;

constexpr Real kTolerance = 1e-15L;

// Solves a square system by elimination with partial pivoting; columns of `system` are n + 1 wide.
std::vector<Real> Eliminate(Matrix system) {
  const size_t n = system.size();
  for (size_t c = 0; c < n; ++c) {
    size_t pivot = c;
    for (size_t r = c + 1; r < n; ++r) {
      if (std::abs(system[r][c]) > std::abs(system[pivot][c])) pivot = r;
    }
    std::swap(system[c], system[pivot]);
    for (size_t r = c + 1; r < n; ++r) {
      const Real factor = system[r][c] / system[c][c];
      for (size_t k = c; k <= n; ++k) system[r][k] -= factor * system[c][k];
    }
  }
  std::vector<Real> x(n);
  for (size_t r = n; r-- > 0;) {
    Real sum = system[r][n];
    for (size_t k = r + 1; k < n; ++k) sum -= system[r][k] * x[k];
    x[r] = sum / system[r][r];
  }
  return x;
}

struct Problem {
  size_t n;
  Real mass;
  Matrix twice_gram;  // 2(K + ridge I)
};

Real Gradient(const Problem& problem, const std::vector<Real>& a, size_t i) {
  Real sum = 0.0L;
  for (size_t j = 0; j < problem.n; ++j) sum += problem.twice_gram[i][j] * a[j];
  return sum;
}

// (lambda, a_S) with the other a fixed.
std::vector<Real> SolveOn(const Problem& problem, const std::vector<Real>& a,
                          const std::vector<size_t>& margin) {
  const size_t s = margin.size();
  Matrix system(s + 1, std::vector<Real>(s + 2, 0.0L));
  std::vector<bool> on_margin(problem.n, false);
  for (const size_t i : margin) on_margin[i] = true;
  system[0][s + 1] = problem.mass;
  for (size_t j = 0; j < problem.n; ++j) {
    if (!on_margin[j]) system[0][s + 1] -= a[j];
  }
  for (size_t k = 0; k < s; ++k) {
    system[0][k + 1] = 1.0L;
    system[k + 1][0] = -1.0L;
    for (size_t l = 0; l < s; ++l) {
      system[k + 1][l + 1] = problem.twice_gram[margin[k]][margin[l]];
    }
    for (size_t j = 0; j < problem.n; ++j) {
      if (!on_margin[j]) system[k + 1][s + 1] -= problem.twice_gram[margin[k]][j] * a[j];
    }
  }
  return Eliminate(std::move(system));
}

Problem MakeProblem(const Params& params, absl::Span<const double> keys) {
  const size_t dim = static_cast<size_t>(params.key_dim);
  Problem problem{keys.size() / dim, 0.0L, {}};
  problem.mass = std::min(static_cast<Real>(params.box_mass), static_cast<Real>(problem.n));
  std::vector<double> row(problem.n);
  for (size_t i = 0; i < problem.n; ++i) {
    GramRow(keys.subspan(i * dim, dim), keys, params.sigma, absl::MakeSpan(row));
    problem.twice_gram.emplace_back();
    for (size_t j = 0; j < problem.n; ++j) {
      problem.twice_gram[i].push_back(
          2.0L * (static_cast<Real>(row[j]) + (i == j ? static_cast<Real>(params.ridge) : 0.0L)));
    }
  }
  return problem;
}

// One step: true when a is optimal on the margin set.
bool StepOn(const Problem& problem, std::vector<size_t>* margin, std::vector<Real>* a,
            Real* lambda) {
  const std::vector<Real> solved = SolveOn(problem, *a, *margin);
  Real step = 1.0L;
  size_t blocking = margin->size();
  for (size_t k = 0; k < margin->size(); ++k) {
    const Real from = (*a)[(*margin)[k]];
    const Real to = solved[k + 1];
    Real length = 1.0L;
    if (to < 0.0L) length = from / (from - to);
    if (to > 1.0L) length = (1.0L - from) / (to - from);
    if (length < step) {
      step = length;
      blocking = k;
    }
  }
  for (size_t k = 0; k < margin->size(); ++k) {
    Real& value = (*a)[(*margin)[k]];
    value += step * (solved[k + 1] - value);
  }
  if (blocking == margin->size()) {
    *lambda = solved[0];
    return true;
  }
  (*a)[(*margin)[blocking]] = solved[blocking + 1] > 1.0L ? 1.0L : 0.0L;
  margin->erase(margin->begin() + static_cast<std::ptrdiff_t>(blocking));
  return false;
}

}  // namespace

RefSolution SolveRef(const Params& params, absl::Span<const double> keys) {
  const Problem problem = MakeProblem(params, keys);
  RefSolution result;
  result.mass = static_cast<double>(problem.mass);
  result.a.assign(problem.n, 0.0L);
  std::vector<size_t> margin;
  Real rest = problem.mass;
  for (size_t i = 0; i < problem.n && rest > 0.0L; ++i) {
    result.a[i] = std::min(1.0L, rest);
    if (rest < 1.0L) margin.push_back(i);
    rest -= result.a[i];
  }
  for (size_t round = 0; round < 100 * problem.n + 100 && !result.converged; ++round) {
    if (!margin.empty() && !StepOn(problem, &margin, &result.a, &result.lambda)) continue;
    const auto is_margin = [&](size_t i) {
      return std::find(margin.begin(), margin.end(), i) != margin.end();
    };
    size_t low = problem.n;   // may take mass: the smallest gradient with a < 1
    size_t high = problem.n;  // may give mass: the largest gradient with a > 0
    std::vector<Real> gradient(problem.n);
    for (size_t i = 0; i < problem.n; ++i) {
      gradient[i] = Gradient(problem, result.a, i);
      if (is_margin(i)) continue;
      if (result.a[i] < 1.0L && (low == problem.n || gradient[i] < gradient[low])) low = i;
      if (result.a[i] > 0.0L && (high == problem.n || gradient[i] > gradient[high])) high = i;
    }
    if (margin.empty()) {
      result.lambda = gradient[high];
      result.converged = low == problem.n || gradient[low] >= gradient[high] - kTolerance;
      if (!result.converged) margin = {std::min(low, high), std::max(low, high)};
      continue;
    }
    const Real low_by = low == problem.n ? 0.0L : result.lambda - gradient[low];
    const Real high_by = high == problem.n ? 0.0L : gradient[high] - result.lambda;
    result.converged = std::max(low_by, high_by) <= kTolerance * (1.0L + result.lambda);
    if (!result.converged) margin.push_back(low_by > high_by ? low : high);
  }
  // rho is the ceil(m)-th largest h, so lambda the ceil(m)-th smallest gradient.
  std::vector<Real> gradient(problem.n);
  for (size_t i = 0; i < problem.n; ++i) gradient[i] = Gradient(problem, result.a, i);
  std::sort(gradient.begin(), gradient.end());
  result.lambda = gradient[static_cast<size_t>(std::ceil(problem.mass)) - 1];
  result.rho = 1.0L - result.lambda / problem.mass;
  return result;
}

std::vector<double> ReadRef(double beta, absl::Span<const float> q, absl::Span<const float> keys,
                            absl::Span<const float> values, absl::Span<const double> gate) {
  const size_t key_dim = q.size();
  const size_t t = keys.size() / key_dim;
  const size_t value_dim = values.size() / t;
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
  std::vector<double> out(value_dim, 0.0);
  double total = 0.0;
  for (size_t i = 0; i < t; ++i) {
    const double weight = std::exp(logits[i] - largest) * (i < gate.size() ? gate[i] : 1.0);
    total += weight;
    for (size_t c = 0; c < value_dim; ++c) {
      out[c] += weight * static_cast<double>(values[i * value_dim + c]);
    }
  }
  for (double& x : out) x /= total;
  return out;
}

}  // namespace lethe::svdd
