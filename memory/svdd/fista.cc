#include "memory/svdd/fista.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/gram/gram.h"
#include "memory/svdd/cholesky.h"

namespace lethe::svdd {
namespace {

constexpr int kStepsPerCheck = 10;

// The leading `n` rows and columns of a Gram matrix.
template <typename Real>
class Prefix {
 public:
  Prefix(const std::vector<Real>* gram, size_t stride, size_t n)
      : gram_(gram->data()), stride_(stride), n_(n) {}

  size_t size() const { return n_; }
  Real at(size_t i, size_t j) const { return gram_[i * stride_ + j]; }

  // out = K x; K is symmetric, so rows are added up, which vectorises.
  void Times(const std::vector<Real>& x, std::vector<Real>* out) const {
    std::fill(out->begin(), out->end(), Real(0));
    for (size_t i = 0; i < n_; ++i) {
      const Real factor = x[i];
      if (factor == Real(0)) continue;
      const Real* row = gram_ + i * stride_;
      for (size_t j = 0; j < n_; ++j) (*out)[j] += factor * row[j];
    }
  }

 private:
  const Real* gram_;
  size_t stride_;
  size_t n_;
};

template <typename Real>
double LargestEigenvalue(const Prefix<Real>& gram, const FistaOptions& options) {
  std::vector<Real> v(gram.size(), Real(1));
  std::vector<Real> next(gram.size());
  double norm = 1.0;
  double bound = 0.0;
  for (int step = 0; step < options.power_steps; ++step) {
    gram.Times(v, &next);
    double squared = 0.0;
    bound = 0.0;
    for (size_t i = 0; i < next.size(); ++i) {
      squared += static_cast<double>(next[i]) * static_cast<double>(next[i]);
      bound = std::max(bound, static_cast<double>(next[i]) / static_cast<double>(v[i]));
    }
    // v has norm 1 from the second step on.
    norm = std::sqrt(squared);
    for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<Real>(next[i] / norm);
  }
  return options.upper_bound ? bound : norm;
}

template <typename Real>
class Iteration {
 public:
  Iteration(const Prefix<Real>& gram, double mass, const FistaOptions& options)
      : gram_(gram),
        mass_(mass),
        options_(options),
        // The paper's 1/(2 lambda + 1e-6); an upper bound needs room for rounding alone.
        step_(1.0 / (2.0 * (LargestEigenvalue(gram, options) + options.iteration_ridge) + 1e-6)),
        gradient_(gram.size()),
        next_(gram.size()) {}

  void Run(std::vector<Real> start, FistaGate* gate) {
    a_ = std::move(start);
    y_ = a_;
    double t = 1.0;
    gate->num_steps = 0;
    gate->residual = Residual();
    gate->converged = gate->residual <= options_.tolerance;
    while (!gate->converged && gate->num_steps < options_.max_steps) {
      t = Step(t);
      ++gate->num_steps;
      if (gate->num_steps % kStepsPerCheck != 0 && gate->num_steps < options_.max_steps) continue;
      gate->residual = Residual();
      gate->converged = gate->residual <= options_.tolerance;
    }
  }

  const std::vector<Real>& a() const { return a_; }

 private:
  // gradient_ = 2(K + ridge I)x - m, diag(K) = 1.
  void GradientAt(const std::vector<Real>& x) {
    gram_.Times(x, &gradient_);
    const auto ridge = static_cast<Real>(options_.iteration_ridge);
    for (size_t i = 0; i < x.size(); ++i) {
      gradient_[i] = Real(2) * (gradient_[i] + ridge * x[i]) - static_cast<Real>(mass_);
    }
  }

  double Step(double t) {
    GradientAt(y_);
    const auto step = static_cast<Real>(step_);
    for (size_t i = 0; i < y_.size(); ++i) next_[i] = y_[i] - step * gradient_[i];
    ProjectToBox(mass_, &next_);
    double uphill = 0.0;
    for (size_t i = 0; i < y_.size(); ++i) {
      uphill += static_cast<double>(y_[i] - next_[i]) * static_cast<double>(next_[i] - a_[i]);
    }
    const bool restart = options_.restart && uphill > 0.0;
    const double t_next = restart ? 1.0 : 0.5 * (1.0 + std::sqrt(1.0 + 4.0 * t * t));
    const auto momentum = static_cast<Real>(restart ? 0.0 : (t - 1.0) / t_next);
    for (size_t i = 0; i < y_.size(); ++i) y_[i] = next_[i] + momentum * (next_[i] - a_[i]);
    a_.swap(next_);
    return t_next;
  }

  double Residual() {
    GradientAt(a_);
    double give = -std::numeric_limits<
        double>::infinity();  // the largest gradient of a key that could give mass
    double take =
        std::numeric_limits<double>::infinity();  // the smallest one of a key that could take some
    for (size_t i = 0; i < a_.size(); ++i) {
      const auto gradient = static_cast<double>(gradient_[i]);
      if (a_[i] > Real(0)) give = std::max(give, gradient);
      if (a_[i] < Real(1)) take = std::min(take, gradient);
    }
    return std::max(0.0, 0.5 * (give - take));
  }

  Prefix<Real> gram_;
  double mass_;
  FistaOptions options_;
  double step_;
  std::vector<Real> a_;
  std::vector<Real> y_;
  std::vector<Real> gradient_;
  std::vector<Real> next_;
};

template <typename Real>
Partition ClassOf(Real a, double tolerance) {
  if (static_cast<double>(a) >= 1.0 - tolerance) return Partition::kError;
  return static_cast<double>(a) > tolerance ? Partition::kMargin : Partition::kReserve;
}

// 1 - lambda/m for the ceil(m)-th smallest 2(K + ridge I)a.
template <typename Real>
double RhoOf(const Prefix<Real>& gram, const std::vector<Real>& a, double ridge, double mass) {
  std::vector<Real> sums(a.size());
  gram.Times(a, &sums);
  for (size_t i = 0; i < a.size(); ++i) sums[i] += static_cast<Real>(ridge) * a[i];
  const auto rank = static_cast<std::ptrdiff_t>(std::ceil(mass)) - 1;
  std::nth_element(sums.begin(), sums.begin() + rank, sums.end());
  return 1.0 - 2.0 * static_cast<double>(sums[static_cast<size_t>(rank)]) / mass;
}

// Classes, a and rho from the iterate.
template <typename Real>
void SolveSystem(const Prefix<Real>& gram, double mass, const FistaOptions& options,
                 const std::vector<Real>& iterate, FistaGate* gate) {
  const size_t n = gram.size();
  std::vector<size_t> margin;
  std::vector<size_t> error;
  gate->iterate.assign(iterate.begin(), iterate.end());
  gate->a.assign(n, 0.0);
  gate->classes.resize(n);
  for (size_t i = 0; i < n; ++i) {
    gate->classes[i] = ClassOf(iterate[i], options.margin_tolerance);
    if (gate->classes[i] == Partition::kMargin) margin.push_back(i);
    if (gate->classes[i] != Partition::kError) continue;
    error.push_back(i);
    gate->a[i] = 1.0;
  }
  if (margin.empty()) {
    gate->rho = RhoOf(gram, iterate, options.iteration_ridge, mass);
    return;
  }
  CholeskyFactor factor(options.system_ridge);
  std::vector<double> column;
  std::vector<double> ones(margin.size(), 1.0);
  std::vector<double> target(margin.size(), 0.0);  // 2 sum_E K_ie, then a
  for (size_t k = 0; k < margin.size(); ++k) {
    column.clear();
    for (size_t p = 0; p < k; ++p) {
      column.push_back(2.0 * static_cast<double>(gram.at(margin[k], margin[p])));
    }
    factor.Append(static_cast<int64_t>(k), column, 1.0);
    for (const size_t e : error) target[k] += 2.0 * static_cast<double>(gram.at(margin[k], e));
  }
  factor.SolveLower(absl::MakeSpan(ones), absl::MakeSpan(target));
  const size_t s = margin.size();
  const double lambda =
      (mass - static_cast<double>(error.size()) + FastDot(ones.data(), target.data(), s)) /
      FastDot(ones.data(), ones.data(), s);
  for (size_t k = 0; k < s; ++k) target[k] = lambda * ones[k] - target[k];
  factor.SolveUpper(absl::MakeSpan(target));
  for (size_t k = 0; k < s; ++k) {
    gate->a[margin[k]] = options.clip ? std::clamp(target[k], 0.0, 1.0) : target[k];
  }
  gate->rho = 1.0 - lambda / mass;
}

}  // namespace

FistaOptions FistaOptions::Serving(const Params& params) {
  FistaOptions options;
  options.iteration_ridge = params.ridge;
  options.system_ridge = params.ridge;
  return options;
}

FistaOptions FistaOptions::Paper(double mass) {
  FistaOptions options;
  options.max_steps = 80;
  options.tolerance = 0.0;
  options.margin_tolerance = 1e-3 * mass;
  options.iteration_ridge = 0.0;
  options.system_ridge = 5e-4;
  options.restart = false;
  options.upper_bound = false;
  options.clip = false;
  options.warm_start = false;
  return options;
}

template <typename Real>
void ProjectToBox(double mass, std::vector<Real>* z) {
  // One halving more than Real has digits: z reaches over a few units only.
  constexpr int kHalvings = sizeof(Real) == sizeof(float) ? 30 : 60;
  const auto [smallest, largest] = std::minmax_element(z->begin(), z->end());
  Real low = *smallest - Real(1);
  Real high = *largest;
  for (int i = 0; i < kHalvings; ++i) {
    const Real middle = Real(0.5) * (low + high);
    double sum = 0.0;
    for (const Real x : *z) sum += static_cast<double>(std::clamp(x - middle, Real(0), Real(1)));
    (sum > mass ? low : high) = middle;
  }
  const Real shift = Real(0.5) * (low + high);
  for (Real& x : *z) x = std::clamp(x - shift, Real(0), Real(1));
}

template <typename Real>
std::vector<FistaGate> FistaGates(const Params& params, absl::Span<const double> keys,
                                  absl::Span<const int64_t> prefixes, const FistaOptions& options) {
  const size_t dim = static_cast<size_t>(params.key_dim);
  const size_t n = prefixes.empty() ? 0 : static_cast<size_t>(prefixes.back());
  LETHE_CHECK(keys.size() >= n * dim && std::is_sorted(prefixes.begin(), prefixes.end()) &&
              (prefixes.empty() || prefixes.front() >= 1));
  std::vector<Real> gram(n * n);
  std::vector<double> row(n);
  for (size_t i = 0; i < n; ++i) {
    GramRow(keys.subspan(i * dim, dim), keys.first(n * dim), params.sigma, absl::MakeSpan(row));
    std::transform(row.begin(), row.end(), gram.begin() + static_cast<std::ptrdiff_t>(i * n),
                   [](double value) { return static_cast<Real>(value); });
  }
  std::vector<FistaGate> gates;
  std::vector<Real> last;
  double last_mass = 0.0;
  for (const int64_t prefix : prefixes) {
    const double mass = Mass(params, prefix);
    std::vector<Real> start(static_cast<size_t>(prefix),
                            static_cast<Real>(mass / static_cast<double>(prefix)));
    if (options.warm_start && last_mass == mass && !last.empty()) {
      last.resize(start.size(), Real(0));
      start = last;
    }
    const Prefix<Real> of_prefix(&gram, n, start.size());
    Iteration<Real> iteration(of_prefix, mass, options);
    iteration.Run(std::move(start), &gates.emplace_back());
    SolveSystem(of_prefix, mass, options, iteration.a(), &gates.back());
    last = iteration.a();
    last_mass = mass;
  }
  return gates;
}

template std::vector<FistaGate> FistaGates<float>(const Params&, absl::Span<const double>,
                                                  absl::Span<const int64_t>, const FistaOptions&);
template std::vector<FistaGate> FistaGates<double>(const Params&, absl::Span<const double>,
                                                   absl::Span<const int64_t>, const FistaOptions&);
template void ProjectToBox<float>(double, std::vector<float>*);
template void ProjectToBox<double>(double, std::vector<double>*);

}  // namespace lethe::svdd
