#include "memory/svdd/fallback.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/base/check.h"
#include "memory/svdd/cholesky.h"
#include "memory/svdd/polish.h"
#include "memory/svdd/propose.h"
#include "memory/svdd/weighted_row_sum.h"

namespace lethe::svdd {
namespace {

constexpr size_t kNone = static_cast<size_t>(-1);

std::atomic<int64_t> num_fallbacks{0};

class ActiveSet {
 public:
  ActiveSet(GramCache* gram, double mass, double ridge, double ridge_lower, double gap_goal)
      : gram_(gram),
        mass_(mass),
        ridge_(ridge),
        ridge_lower_(ridge_lower),
        gap_goal_(gap_goal),
        weights_(gram->weights()),
        n_(weights_.size()),
        factor_(ridge) {}

  FallbackResult Run();

 private:
  void MakeStart();
  // Moves towards the optimum on S; true when it was reached, false when a bound stopped the step.
  bool StepOnMargin();
  // Gap and entering members at a point that is optimal on S. False when it is done.
  bool Enter();
  DoubleDouble Gradient(size_t i) const;
  void CollectSets();

  GramCache* gram_;
  double mass_;
  double ridge_;
  double ridge_lower_;
  double gap_goal_;
  absl::Span<const double> weights_;
  size_t n_;
  CholeskyFactor factor_;
  std::vector<Partition> classes_;
  std::vector<DoubleDouble> a_;
  DoubleDouble lambda_;
  double margin_gap_ = 0.0;  // what the residuals on S may add to the gap
  std::vector<int64_t> margin_;
  std::vector<int64_t> error_;
  std::vector<int64_t> support_;
  std::vector<DoubleDouble> totals_;  // w a on support_
  bool certified_ = false;
};

FallbackResult ActiveSet::Run() {
  MakeStart();
  FallbackResult result;
  const int64_t limit = 20 * static_cast<int64_t>(n_) + 1000;
  bool more = true;
  while (more && result.num_steps < limit) {
    ++result.num_steps;
    CollectSets();
    if (margin_.empty() || StepOnMargin()) more = Enter();
  }
  result.a = a_;
  result.lambda = lambda_;
  result.certified = certified_;
  return result;
}

// The cold-started f64 proposal, clipped to the box; the rest of the mass goes by rank.
void ActiveSet::MakeStart() {
  Start start = ColdStart(weights_, mass_);
  Propose(gram_, mass_, ridge_, &factor_, &start);
  factor_.Clear();
  a_.assign(n_, DoubleDouble());
  DoubleDouble rest = mass_;
  for (size_t i = 0; i < n_; ++i) {
    double value = start.classes[i] == Partition::kError ? 1.0 : 0.0;
    if (start.classes[i] == Partition::kMargin) value = std::clamp(start.a[i], 0.0, 1.0);
    a_[i] = value;
    rest = rest - a_[i] * weights_[i];
  }
  for (size_t i = 0; i < n_ && !(rest == DoubleDouble()); ++i) {
    const DoubleDouble wanted = a_[i] + rest / weights_[i];
    const DoubleDouble given = wanted < 0.0 ? DoubleDouble() : wanted > 1.0 ? 1.0 : wanted;
    // What this row took; exact enough that the sum row of the next solve settles it.
    rest = given == wanted ? DoubleDouble() : rest - (given - a_[i]) * weights_[i];
    a_[i] = given;
  }
  classes_.resize(n_);
  for (size_t i = 0; i < n_; ++i) {
    classes_[i] = a_[i] <= 0.0   ? Partition::kReserve
                  : a_[i] >= 1.0 ? Partition::kError
                                 : Partition::kMargin;
  }
}

void ActiveSet::CollectSets() {
  margin_.clear();
  error_.clear();
  support_.clear();
  totals_.clear();
  for (size_t i = 0; i < n_; ++i) {
    if (classes_[i] == Partition::kReserve) continue;
    (classes_[i] == Partition::kMargin ? margin_ : error_).push_back(static_cast<int64_t>(i));
    support_.push_back(static_cast<int64_t>(i));
    totals_.push_back(a_[i] * weights_[i]);
  }
}

bool ActiveSet::StepOnMargin() {
  PartitionSystem system(gram_, mass_, ridge_, ridge_lower_, margin_, error_);
  SyncFactor(gram_, weights_, margin_, &factor_);
  system.Refine(factor_);
  DoubleDouble step = 1.0;
  size_t blocking = kNone;
  for (size_t k = 0; k < margin_.size(); ++k) {
    const DoubleDouble from = a_[static_cast<size_t>(margin_[k])];
    const DoubleDouble& to = system.a()[k];
    DoubleDouble length = 1.0;
    if (to < 0.0) length = from / (from - to);
    if (to > 1.0) length = (-from + 1.0) / (to - from);
    if (length < step) {
      step = length;
      blocking = k;
    }
  }
  for (size_t k = 0; k < margin_.size(); ++k) {
    DoubleDouble& value = a_[static_cast<size_t>(margin_[k])];
    value = blocking == kNone ? system.a()[k] : value + (system.a()[k] - value) * step;
  }
  if (blocking != kNone) {
    const size_t i = static_cast<size_t>(margin_[blocking]);
    const bool at_one = system.a()[blocking] > 1.0;
    a_[i] = at_one ? 1.0 : 0.0;
    classes_[i] = at_one ? Partition::kError : Partition::kReserve;
    return false;
  }
  lambda_ = system.lambda();
  margin_gap_ = std::sqrt(system.num_copies()) * system.residual_norm() +
                system.sum_residual() * (std::abs(lambda_.hi) + 1.0);
  CollectSets();
  return true;
}

DoubleDouble ActiveSet::Gradient(size_t i) const {
  const std::vector<int64_t> row = {static_cast<int64_t>(i)};
  std::vector<double> values(support_.size());
  gram_->Block(row, support_, absl::MakeSpan(values));
  DoubleDouble sum = a_[i] * ridge_;
  for (size_t k = 0; k < support_.size(); ++k) sum += totals_[k] * values[k];
  return sum * 2.0;
}

bool ActiveSet::Enter() {
  // A f64 pass finds the rows that need double-double: wrong or nearly wrong ones.
  std::vector<double> totals;
  for (const DoubleDouble& total : totals_) totals.push_back(total.hi);
  std::vector<double> sums;
  WeightedRowSum(gram_, support_, totals, &sums);
  const double k = static_cast<double>(support_.size());
  const double rough = 0x1.0p-53 * (mass_ + 1.0) * (k + 64.0);
  const double fine = (4.0 * k + 20.0) * 0x1.0p-104 * (4.0 * mass_ + 4.0);
  if (margin_.empty()) {
    margin_gap_ = 0.0;
    bool first = true;
    for (const int64_t i : error_) {
      const DoubleDouble gradient = Gradient(static_cast<size_t>(i));
      if (first || gradient > lambda_) lambda_ = gradient;
      first = false;
    }
  }
  double gap = margin_gap_;
  size_t entering = kNone;
  size_t partner = kNone;  // with an empty margin set, the member of E with the largest gradient
  DoubleDouble worst = fine;
  for (size_t i = 0; i < n_; ++i) {
    if (classes_[i] == Partition::kMargin) continue;
    const double sign = classes_[i] == Partition::kError ? 1.0 : -1.0;
    if (sign * (2.0 * (sums[i] + ridge_ * a_[i].hi) - lambda_.hi) < -rough) continue;
    const DoubleDouble violation = (Gradient(i) - lambda_) * sign;
    gap += weights_[i] * std::max(0.0, violation.hi + fine);
    if (margin_.empty() && sign > 0.0 && violation >= 0.0 && partner == kNone) partner = i;
    if (violation > worst) {
      worst = violation;
      entering = i;
    }
  }
  certified_ = gap < gap_goal_;
  if (certified_ || entering == kNone) return false;
  classes_[entering] = Partition::kMargin;
  if (partner != kNone) classes_[partner] = Partition::kMargin;
  return true;
}

}  // namespace

FallbackResult Fallback(GramCache* gram, double mass, double ridge, double ridge_lower,
                        double threshold) {
  LETHE_CHECK(static_cast<double>(gram->num_keys()) > mass && ridge_lower > 0.0);
  num_fallbacks.fetch_add(1, std::memory_order_relaxed);
  const double gap_goal = 0.5 * ridge_lower * threshold * threshold;
  FallbackResult result = ActiveSet(gram, mass, ridge, ridge_lower, gap_goal).Run();
  const double half = 0.5 * threshold;
  for (const DoubleDouble& a : result.a) {
    result.classes.push_back(a <= half         ? Partition::kReserve
                             : a >= 1.0 - half ? Partition::kError
                                               : Partition::kMargin);
  }
  return result;
}

int64_t NumFallbacks() { return num_fallbacks.load(std::memory_order_relaxed); }

}  // namespace lethe::svdd
