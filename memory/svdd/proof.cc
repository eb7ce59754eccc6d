#include "memory/svdd/proof.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "absl/status/status.h"

#include "kernels/base/status_macros.h"
#include "memory/svdd/distinct_keys.h"
#include "memory/svdd/double_double.h"
#include "memory/svdd/enclosure.h"
#include "memory/svdd/outward.h"
#include "memory/svdd/support_sums.h"

namespace lethe::svdd {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

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

// The text of a number: finite, and the low word what rounding left.
bool IsNormal(const DoubleDouble& x) { return std::isfinite(x.hi) && x.hi + x.lo == x.hi; }

absl::Status CheckWitness(const Witness& witness, size_t num_margin_keys, double mass,
                          size_t num_keys) {
  if (static_cast<double>(num_keys) <= mass) {
    return Invalid("witness: none is expected for n at most box_mass");
  }
  if (num_margin_keys == 0) return Invalid("witness: none is expected without a margin set");
  if (witness.a.size() != num_margin_keys) {
    return Invalid("witness.a: one per distinct margin key is expected");
  }
  if (!IsNormal(witness.lambda) || !(witness.lambda >= 0.0 && witness.lambda <= 4.0 * mass)) {
    return Invalid("witness.lambda is outside 0..4m or its low word above half an ulp");
  }
  for (const DoubleDouble& x : witness.a) {
    if (!IsNormal(x) || !(x > 0.0 && x < 1.0)) {
      return Invalid("witness.a is outside 0..1 or a low word above half an ulp");
    }
  }
  return absl::OkStatus();
}

class Prover {
 public:
  Prover(const Params& params, const DistinctKeys& keys, const ReportedSolution& reported)
      : params_(params),
        keys_(keys),
        classes_(reported.classes),
        a_(reported.a),
        rho_(reported.rho),
        witness_(keys.uniform() ? reported.witness : nullptr),
        n_(reported.a.size()),
        mass_(Mass(params, static_cast<int64_t>(n_))),
        single_point_(static_cast<double>(n_) <= params.box_mass) {}

  OptimalityBounds Run();
  const std::vector<DoubleDouble>& g() const { return g_; }

 private:
  void MakeFeasible();
  void Give(size_t i, DoubleDouble* rest);
  void EvaluateGradients();
  double Gap() const;
  double RhoDistance() const;
  struct Gradients {
    DoubleDouble error_max;
    DoubleDouble reserve_min;
  };
  Gradients OuterGradients() const;
  double SmallestMargin() const;
  void Count(OptimalityBounds* bounds) const;
  void SetGapBounds(OptimalityBounds* bounds) const;
  bool ProveSinglePoint() const;
  bool ProveEmptyMargin() const;
  Enclosure Enclose() const;
  void SetExactBounds(OptimalityBounds* bounds) const;
  void SetEnclosureBounds(const Enclosure& enclosure, OptimalityBounds* bounds) const;

  const Params& params_;
  const DistinctKeys& keys_;
  absl::Span<const Partition> classes_;
  absl::Span<const double> a_;
  double rho_;
  const Witness* witness_;
  size_t n_;
  double mass_;
  bool single_point_;
  std::vector<DoubleDouble> feasible_;  // a^, in a-units
  double delta_ = 0.0;                  // |a - a^|_1, in a-units, rounded up
  double sum_error_ = 0.0;              // on the sum of feasible_, in a-units
  SupportSums sums_;
  std::vector<DoubleDouble> g_;  // rho - h_i at a^, in alpha-units
  double g_error_ = 0.0;         // on every g_
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
  sums_ = SumOverSupport(params_, keys_, feasible_, a_, witness_);
  g_.resize(n_);
  for (size_t i = 0; i < keys_.size(); ++i) {
    // g = rho - h, h = 1 - 2((K + ridge I) a^)_i / m.
    for (const size_t row : keys_.rows(i)) {
      const DoubleDouble own = sums_.feasible[i] + feasible_[row] * params_.ridge;
      g_[row] = own * 2.0 / mass_ + (rho_ - DoubleDouble(1.0));
    }
  }
  // The sums' error; that of the operations above, each under 2^-102 of terms that are at most 2(1 +
  // ridge) + |rho| + 1; and what sum_error_ moves.
  const double scale = 2.0 * (1.0 + params_.ridge) + std::abs(rho_) + 1.0;
  g_error_ = NextAbove(2.125 * sums_.feasible_error / mass_ + scale * 0x1.0p-99 +
                       4.0 * (1.0 + params_.ridge) * sum_error_ / mass_);
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

// The largest g over E and the smallest over R; infinite where there is none.
Prover::Gradients Prover::OuterGradients() const {
  Gradients outer{-kInfinity, kInfinity};
  for (size_t i = 0; i < n_; ++i) {
    if (classes_[i] == Partition::kError) {
      outer.error_max = outer.error_max < g_[i] ? g_[i] : outer.error_max;
    } else if (classes_[i] == Partition::kReserve) {
      outer.reserve_min = g_[i] < outer.reserve_min ? g_[i] : outer.reserve_min;
    }
  }
  return outer;
}

double Prover::SmallestMargin() const {
  if (static_cast<double>(n_) <= params_.box_mass) return kInfinity;
  double smallest = kInfinity;
  bool has_margin = false;
  for (size_t i = 0; i < n_; ++i) {
    if (classes_[i] != Partition::kMargin) continue;
    has_margin = true;
    smallest = std::min({smallest, a_[i], NextBelow(1.0 - a_[i])});
  }
  const Gradients outer = OuterGradients();
  // In a-units; with an empty margin rho is free between the two, so half the gap counts.
  const DoubleDouble of_gradients = has_margin ? std::min(outer.reserve_min, -outer.error_max)
                                               : (outer.reserve_min - outer.error_max) * 0.5;
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

void Prover::SetGapBounds(OptimalityBounds* bounds) const {
  // The one feasible point needs no gap: a^ is it.
  bounds->gap = single_point_ ? 0.0 : Gap();
  bounds->delta = QuotientUp(delta_, mass_);
  bounds->kernel_sum_bound = SumUp(RootUp(bounds->gap / 2.0), bounds->delta);
  bounds->alpha_norm_bound =
      SumUp(RootUp(QuotientUp(bounds->gap, 2.0 * params_.ridge)), bounds->delta);
  bounds->alpha_bound = bounds->alpha_norm_bound;
  const double moved = RootUp(ProductUp(NextAbove(1.0 + params_.ridge), bounds->gap / 2.0));
  bounds->rho_bound = SumUp(RhoDistance(), 2.0 * moved);
}

bool Prover::ProveSinglePoint() const {
  return std::all_of(classes_.begin(), classes_.end(),
                     [](Partition place) { return place == Partition::kError; });
}

// |E| = m, and every reserve g above every error g: with rho between them the KKT conditions hold.
bool Prover::ProveEmptyMargin() const {
  const auto num_error =
      static_cast<double>(std::count(classes_.begin(), classes_.end(), Partition::kError));
  const Gradients outer = OuterGradients();
  return num_error == mass_ && Down(outer.reserve_min - outer.error_max) > 2.0 * g_error_;
}

Enclosure Prover::Enclose() const {
  EnclosureInput input;
  input.mass = mass_;
  input.ridge = params_.ridge;
  input.lambda = witness_->lambda;
  input.sum_error = sums_.reference_error;
  size_t next = 0;
  for (size_t i = 0; i < keys_.size(); ++i) {
    const Partition place = keys_.place(i);
    const DoubleDouble a = place == Partition::kMargin  ? witness_->a[next++]
                           : place == Partition::kError ? DoubleDouble(1.0)
                                                        : DoubleDouble();
    input.rows.push_back({place, keys_.copies(i), a, sums_.reference[i]});
  }
  return EncloseOptimum(input);
}

// alpha is the optimum itself, and a^ too: of what is bounded only rho was rounded.
void Prover::SetExactBounds(OptimalityBounds* bounds) const {
  bounds->partition_proved = true;
  bounds->gap = bounds->delta = bounds->kernel_sum_bound = 0.0;
  bounds->alpha_bound = bounds->alpha_norm_bound = bounds->weight_ratio_bound = 0.0;
  bounds->rho_bound = RhoDistance();
}

void Prover::SetEnclosureBounds(const Enclosure& enclosure, OptimalityBounds* bounds) const {
  bounds->partition_proved = true;
  double apart_max = 0.0;  // of |a_i - a*_i|
  double ratio_max = 0.0;  // of that to a_i
  for (size_t j = 0; j < keys_.margin().size(); ++j) {
    for (const size_t row : keys_.rows(keys_.margin()[j])) {
      const double apart = SumUp(Up(Abs(-witness_->a[j] + a_[row])), enclosure.radius);
      apart_max = std::max(apart_max, apart);
      ratio_max = std::max(ratio_max, QuotientUp(apart, a_[row]));
    }
  }
  bounds->weight_ratio_bound = ratio_max;
  bounds->alpha_bound = std::min(bounds->alpha_bound, QuotientUp(apart_max, mass_));
  bounds->kernel_sum_bound = std::min(
      bounds->kernel_sum_bound, QuotientUp(SumUp(sums_.moved_bound, enclosure.sum_radius), mass_));
  // m (1 - rho) - lambda^; 1 - rho is exact as two doubles, the rest within 2^-102 of its terms.
  const DoubleDouble distance = TwoSum(1.0, -rho_) * mass_ - witness_->lambda;
  const double magnitude = ProductUp(mass_, 1.0 + std::abs(rho_)) + witness_->lambda.hi;
  const double rho_error = SumUp(enclosure.lambda_radius, ProductUp(magnitude, 0x1.0p-100));
  bounds->rho_bound =
      std::min(bounds->rho_bound, QuotientUp(SumUp(Up(Abs(distance)), rho_error), mass_));
}

OptimalityBounds Prover::Run() {
  OptimalityBounds bounds;
  Count(&bounds);
  MakeFeasible();
  EvaluateGradients();
  SetGapBounds(&bounds);
  if (single_point_ ? ProveSinglePoint() : bounds.num_margin == 0 && ProveEmptyMargin()) {
    SetExactBounds(&bounds);
  } else if (witness_ != nullptr) {
    const Enclosure enclosure = Enclose();
    if (enclosure.proved) SetEnclosureBounds(enclosure, &bounds);
  }
  bounds.decision_bound = SumUp(bounds.rho_bound, 2.0 * bounds.kernel_sum_bound);
  bounds.smallest_margin = SmallestMargin();
  return bounds;
}

}  // namespace

absl::StatusOr<OptimalityBounds> ProveOptimality(const Params& params,
                                                 absl::Span<const double> keys,
                                                 const ReportedSolution& reported,
                                                 std::vector<double>* gradients) {
  LETHE_ASSIGN_OR_RETURN(const Params checked,
                         MakeParams(params.sigma, params.box_mass, params.ridge, params.key_dim));
  if (checked.box_mass != params.box_mass) {
    return Invalid("box_mass is within 1e-9 of an integer but is not it");
  }
  LETHE_RETURN_IF_ERROR(CheckKeys(params, keys));
  const size_t n = reported.a.size();
  if (n == 0) return Invalid("a: at least one key is expected");
  if (keys.size() / static_cast<size_t>(params.key_dim) != n) {
    return Invalid("keys: one per row of a is expected");
  }
  if (reported.classes.size() != n) return Invalid("classes: one per row of a is expected");
  if (!(std::abs(reported.rho) <= 4.0)) return Invalid("rho is not finite or outside -4..4");
  LETHE_RETURN_IF_ERROR(CheckClasses(reported.classes, reported.a));
  const DistinctKeys distinct(params.key_dim, keys, reported.classes);
  if (reported.witness != nullptr) {
    LETHE_RETURN_IF_ERROR(
        CheckWitness(*reported.witness, distinct.margin().size(), params.box_mass, n));
  }
  Prover prover(params, distinct, reported);
  const OptimalityBounds bounds = prover.Run();
  if (gradients != nullptr) {
    gradients->clear();
    for (const DoubleDouble& g : prover.g()) gradients->push_back(g.hi);
  }
  return bounds;
}

}  // namespace lethe::svdd
