#include "memory/svdd/proof.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include "absl/status/status.h"

#include "kernels/base/status_macros.h"
#include "memory/svdd/double_double.h"
#include "memory/svdd/key_groups.h"
#include "memory/svdd/wide_exp.h"

namespace lethe::svdd {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Above the value of x, whatever its low word.
double Up(const DoubleDouble& x) { return std::nextafter(x.hi + std::max(x.lo, 0.0), kInfinity); }
double Down(const DoubleDouble& x) {
  return std::nextafter(x.hi + std::min(x.lo, 0.0), -kInfinity);
}
// Square roots of nonnegative bounds, rounded up.
double RootUp(double x) { return std::nextafter(std::sqrt(x), kInfinity); }
double SumUp(double x, double y) { return std::nextafter(x + y, kInfinity); }
double ProductUp(double x, double y) { return std::nextafter(x * y, kInfinity); }

absl::Status Invalid(const char* message) { return absl::InvalidArgumentError(message); }

absl::Status CheckClasses(absl::Span<const Partition> classes, absl::Span<const double> a) {
  for (size_t i = 0; i < classes.size(); ++i) {
    if (!(a[i] >= 0.0 && a[i] <= 1.0)) return Invalid("a is outside 0..1");
    switch (classes[i]) {
      case Partition::kReserve:
        if (a[i] != 0.0) return Invalid("classes: reserve with a other than 0");
        break;
      case Partition::kMargin:
        if (a[i] == 0.0 || a[i] == 1.0) return Invalid("classes: margin with a of 0 or 1");
        break;
      case Partition::kError:
        if (a[i] != 1.0) return Invalid("classes: error with a other than 1");
        break;
      default:
        return Invalid("classes: unknown class");
    }
  }
  return absl::OkStatus();
}

class Prover {
 public:
  Prover(const Params& params, absl::Span<const double> keys, absl::Span<const Partition> classes,
         absl::Span<const double> a, double rho)
      : params_(params),
        classes_(classes),
        a_(a),
        rho_(rho),
        n_(a.size()),
        groups_(params.key_dim),
        mass_(Mass(params, static_cast<int64_t>(a.size()))) {
    groups_.Append(keys);
  }

  OptimalityBounds Run();
  const std::vector<DoubleDouble>& g() const { return g_; }

 private:
  void MakeFeasible();
  void Give(size_t i, DoubleDouble* rest);
  void EvaluateGradients();
  double Gap() const;
  double RhoDistance() const;
  double SmallestMargin() const;
  void Count(OptimalityBounds* bounds) const;

  DoubleDouble Kernel(size_t i, size_t j) const {
    return WideKernel(groups_.Key(static_cast<int64_t>(i)), groups_.Key(static_cast<int64_t>(j)),
                      params_.sigma);
  }

  const Params& params_;
  absl::Span<const Partition> classes_;
  absl::Span<const double> a_;
  double rho_;
  size_t n_;
  KeyGroups groups_;
  double mass_;
  std::vector<DoubleDouble> feasible_;  // a^, in a-units
  double delta_ = 0.0;                  // |a - a^|_1, in a-units, rounded up
  double sum_error_ = 0.0;              // on the sum of feasible_, in a-units
  std::vector<DoubleDouble> g_;         // rho - h_i at a^, in alpha-units
  double g_error_ = 0.0;                // on every g_
};

// Row i takes what it can of the rest of the sum.
void Prover::Give(size_t i, DoubleDouble* rest) {
  const DoubleDouble wanted = feasible_[i] + *rest;
  const DoubleDouble given = wanted < 0.0 ? DoubleDouble() : wanted > 1.0 ? 1.0 : wanted;
  *rest = given == wanted ? DoubleDouble() : *rest - (given - feasible_[i]);
  feasible_[i] = given;
}

// Margin rows first, since they have room; a rest that even they cannot take goes to the others, by
// rank. The exact a^ differs from the stored one by at most sum_error_, in the row that took the
// last of the rest.
void Prover::MakeFeasible() {
  DoubleDouble rest = mass_;
  for (size_t i = 0; i < n_; ++i) {
    feasible_.push_back(a_[i]);
    rest += -a_[i];
  }
  sum_error_ = (static_cast<double>(n_) + 8.0) * 0x1.0p-102 * (mass_ + static_cast<double>(n_));
  for (const bool margin_rows : {true, false}) {
    for (size_t i = 0; i < n_ && !(rest == DoubleDouble()); ++i) {
      if ((classes_[i] == Partition::kMargin) == margin_rows) Give(i, &rest);
    }
  }
  DoubleDouble distance = sum_error_;
  for (size_t i = 0; i < n_; ++i) distance += Abs(feasible_[i] - a_[i]);
  const bool exact =
      std::all_of(a_.begin(), a_.end(), [](double x) { return x == 0.0 || x == 1.0; }) &&
      distance == DoubleDouble(sum_error_);
  // Zeros and ones sum exactly.
  if (exact) sum_error_ = 0.0;
  delta_ = exact ? 0.0 : Up(distance * (1.0 + 0x1.0p-50));
}

// Rows of one key share the sum over all keys; only their own ridge terms differ.
void Prover::EvaluateGradients() {
  const size_t num_groups = static_cast<size_t>(groups_.num_groups());
  std::vector<DoubleDouble> totals(num_groups);  // of a^ over equal keys
  double num_support = 0.0;
  for (size_t i = 0; i < n_; ++i) {
    if (!(feasible_[i] > 0.0)) continue;
    totals[static_cast<size_t>(groups_.GroupOf(static_cast<int64_t>(i)))] += feasible_[i];
    num_support += 1.0;
  }
  std::vector<std::vector<size_t>> rows(num_groups);
  for (size_t i = 0; i < n_; ++i) {
    rows[static_cast<size_t>(groups_.GroupOf(static_cast<int64_t>(i)))].push_back(i);
  }
  g_.resize(n_);
  std::vector<DoubleDouble> values(num_groups);
  for (size_t i = 0; i < num_groups; ++i) {
    for (size_t j = 0; j < num_groups; ++j) {
      if (!(totals[j] > 0.0)) continue;
      values[j] = i == j ? totals[j] : totals[j] * Kernel(i, j);
    }
    DoubleDouble sum;
    for (size_t j = 0; j < num_groups; ++j) {
      if (totals[j] > 0.0) sum += values[j];
    }
    // g = rho - h, h = 1 - 2((K + ridge I) a^)_i / m.
    for (const size_t row : rows[i]) {
      const DoubleDouble own = sum + feasible_[row] * params_.ridge;
      g_[row] = own * 2.0 / mass_ + (rho_ - DoubleDouble(1.0));
    }
  }
  // The kernel's own error, the sum's (numerics: 2(u_v + (|S u E| + 2) 2^-104), doubled for the
  // division and the last sums, whose terms are at most 2 + |rho|), and what sum_error_ moves.
  // |S u E| counts rows: the totals take 3u^2 (of at most m) for each of them, the sum over keys no
  // more again.
  const double terms = num_support + 8.0;
  const double scale = 2.0 * (1.0 + params_.ridge) + std::abs(rho_) + 1.0;
  g_error_ = 4.0 * (WideKernelError(params_.key_dim) + terms * 0x1.0p-104 * scale) +
             4.0 * (1.0 + params_.ridge) * sum_error_ / mass_;
}

// sum alpha^_i max(g_i, 0) + (1/m - alpha^_i) max(-g_i, 0), in alpha-units.
double Prover::Gap() const {
  DoubleDouble gap;
  for (size_t i = 0; i < n_; ++i) {
    const DoubleDouble high = g_[i] + g_error_;
    const DoubleDouble low = -g_[i] + g_error_;
    if (high > 0.0) gap += (feasible_[i] + sum_error_) * high;
    if (low > 0.0) gap += (-feasible_[i] + 1.0 + sum_error_) * low;
  }
  return Up(gap / mass_ * (1.0 + (static_cast<double>(n_) + 16.0) * 0x1.0p-50));
}

// |rho - h_(k)(a^)| <= |g_(k)|, k = ceil(m): g is ascending where h is descending.
double Prover::RhoDistance() const {
  std::vector<DoubleDouble> sorted = g_;
  const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(std::ceil(mass_)) - 1;
  std::nth_element(sorted.begin(), at, sorted.end());
  return SumUp(Up(Abs(*at)), g_error_);
}

double Prover::SmallestMargin() const {
  if (static_cast<double>(n_) <= params_.box_mass) return kInfinity;
  double smallest = kInfinity;
  DoubleDouble error_max = -kInfinity;   // of g over E
  DoubleDouble reserve_min = kInfinity;  // of g over R
  bool has_margin = false;
  for (size_t i = 0; i < n_; ++i) {
    if (classes_[i] == Partition::kMargin) {
      has_margin = true;
      smallest = std::min({smallest, a_[i], std::nextafter(1.0 - a_[i], 0.0)});
    } else if (classes_[i] == Partition::kError) {
      error_max = error_max < g_[i] ? g_[i] : error_max;
    } else {
      reserve_min = g_[i] < reserve_min ? g_[i] : reserve_min;
    }
  }
  // In a-units; with an empty margin rho is free between the two, so half the gap counts.
  const DoubleDouble of_gradients =
      has_margin ? std::min(reserve_min, -error_max) : (reserve_min - error_max) * 0.5;
  // Neither R nor E to compare with: without a margin set that is no solution for n > M.
  if (!std::isfinite(of_gradients.hi)) return has_margin ? smallest : -kInfinity;
  return std::min(smallest, Down((of_gradients - g_error_) * mass_));
}

void Prover::Count(OptimalityBounds* bounds) const {
  for (const Partition place : classes_) {
    bounds->num_margin += place == Partition::kMargin ? 1 : 0;
    bounds->num_error += place == Partition::kError ? 1 : 0;
    bounds->num_reserve += place == Partition::kReserve ? 1 : 0;
  }
}

OptimalityBounds Prover::Run() {
  OptimalityBounds bounds;
  Count(&bounds);
  MakeFeasible();
  EvaluateGradients();
  // With n <= M the only feasible point is a = 1, which a^ is.
  const bool single_point = static_cast<double>(n_) <= params_.box_mass;
  bounds.gap = single_point ? 0.0 : Gap();
  bounds.delta = std::nextafter(delta_ / mass_, delta_ > 0.0 ? kInfinity : 0.0);
  const double energy = RootUp(bounds.gap / 2.0);  // |phi(alpha^) - phi(alpha*)|
  const double root_gap = bounds.gap > 0.0 ? energy : 0.0;
  bounds.kernel_sum_bound = delta_ > 0.0 || root_gap > 0.0 ? SumUp(root_gap, bounds.delta) : 0.0;
  const double spread = bounds.gap > 0.0 ? RootUp(ProductUp(bounds.gap, 0.5 / params_.ridge)) : 0.0;
  bounds.alpha_bound = delta_ > 0.0 || spread > 0.0 ? SumUp(spread, bounds.delta) : 0.0;
  const double moved =
      bounds.gap > 0.0 ? ProductUp(2.0, RootUp(ProductUp(1.0 + params_.ridge, bounds.gap / 2.0)))
                       : 0.0;
  bounds.rho_bound = SumUp(RhoDistance(), moved);
  bounds.decision_bound =
      SumUp(bounds.rho_bound, ProductUp(2.0, SumUp(bounds.kernel_sum_bound, bounds.delta)));
  bounds.smallest_margin = SmallestMargin();
  return bounds;
}

}  // namespace

absl::StatusOr<OptimalityBounds> ProveOptimality(const Params& params,
                                                 absl::Span<const double> keys,
                                                 absl::Span<const Partition> classes,
                                                 absl::Span<const double> a, double rho,
                                                 std::vector<double>* gradients) {
  LETHE_ASSIGN_OR_RETURN(const Params checked,
                         MakeParams(params.sigma, params.box_mass, params.ridge, params.key_dim));
  if (checked.box_mass != params.box_mass) {
    return Invalid("box_mass is within 1e-9 of an integer but is not it");
  }
  LETHE_RETURN_IF_ERROR(CheckKeys(params, keys));
  if (a.empty()) return Invalid("a: at least one key is expected");
  if (keys.size() / static_cast<size_t>(params.key_dim) != a.size()) {
    return Invalid("keys: one per row of a is expected");
  }
  if (classes.size() != a.size()) return Invalid("classes: one per row of a is expected");
  if (!(std::abs(rho) <= 4.0)) return Invalid("rho is not finite or outside -4..4");
  LETHE_RETURN_IF_ERROR(CheckClasses(classes, a));
  Prover prover(params, keys, classes, a, rho);
  const OptimalityBounds bounds = prover.Run();
  if (gradients != nullptr) {
    gradients->clear();
    for (const DoubleDouble& g : prover.g()) gradients->push_back(g.hi);
  }
  return bounds;
}

}  // namespace lethe::svdd
