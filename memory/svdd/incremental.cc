#include "memory/svdd/incremental.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/wiped.h"
#include "memory/svdd/canon.h"
#include "memory/svdd/polish.h"
#include "memory/svdd/propose.h"
#include "memory/svdd/sampled_start.h"

namespace lethe::svdd {
namespace {

constexpr size_t kBlock = 512;  // columns

// Support keys that leave by one homotopy: each of them moves the margin set on its way.
constexpr std::ptrdiff_t kManySupport = 8;

size_t At(int64_t index) { return static_cast<size_t>(index); }

}  // namespace

// The sums of one Accept: the held ones, brought to its totals.
class IncrementalSolver::HeldSums final : public RowSums {
 public:
  explicit HeldSums(IncrementalSolver* solver) : solver_(solver) {}

  absl::Span<const double> Of(const std::vector<int64_t>& support,
                              const std::vector<double>& totals, double* error) override {
    solver_->HoldOnly(support, totals);
    values_ = solver_->HeldValues();
    *error = solver_->sums_.Error(totals);
    return values_;
  }

 private:
  IncrementalSolver* solver_;
  std::vector<double> values_;
};

IncrementalSolver::IncrementalSolver(const Params& params)
    : params_(params),
      gram_(params.sigma, params.key_dim),
      factor_(params.ridge),
      sums_(params.box_mass) {}

absl::Status IncrementalSolver::CheckCount(int64_t num_keys) const {
  if (RidgeLower(params_, num_keys) >= 0.5 * params_.ridge) return absl::OkStatus();
  return absl::FailedPreconditionError("too many keys for this ridge: n u_kappa exceeds ridge/2");
}

bool IncrementalSolver::MarginsHold(int64_t num_keys) const {
  return !IsSaturated(solution_.num_keys) && !solution_.ambiguous &&
         solution_.smallest_margin >= 2.0 * MarginThreshold(params_, num_keys);
}

const Solution& IncrementalSolver::solution() {
  if (rho_is_due_) {
    if (!row_sums_.has_value()) row_sums_.emplace(params_);
    std::vector<double> all = keys();
    const auto summed = At(row_sums_->num_keys() * params_.key_dim);
    LETHE_CHECK(row_sums_->Append(absl::MakeConstSpan(all).subspan(summed)).ok() &&
                row_sums_->Solve().ok());
    WipeFrom(&all, 0);
    solution_ = row_sums_->solution();
    rho_is_due_ = false;
  }
  return solution_;
}

void IncrementalSolver::WipeSolution() {
  WipeFrom(&solution_.a, 0);
  WipeFrom(&solution_.classes, 0);
}

void IncrementalSolver::DropRowSums() {
  if (row_sums_.has_value()) row_sums_->Truncate(0, Solution());  // overwrites
  row_sums_.reset();
}

size_t IncrementalSolver::state_bytes() const {
  return gram_.state_bytes() + factor_.state_bytes() + sums_.size() * sizeof(int64_t) +
         (held_.capacity() + weights_.capacity() + a_.capacity() + gradient_.capacity() +
          solution_.a.capacity()) *
             sizeof(double) +
         classes_.capacity() + solution_.classes.capacity() +
         (row_sums_.has_value() ? row_sums_->state_bytes() : 0);
}

absl::Status IncrementalSolver::Add(absl::Span<const double> key) {
  if (static_cast<int64_t>(key.size()) != params_.key_dim) {
    return absl::InvalidArgumentError("key: key_dim components are expected");
  }
  LETHE_RETURN_IF_ERROR(CheckKeys(params_, key));
  const int64_t n = gram_.num_keys() + 1;
  LETHE_RETURN_IF_ERROR(CheckCount(n));
  gram_.Append(key);
  if (IsSaturated(n)) {
    Saturate();
    return absl::OkStatus();
  }
  HoldNewGroups();
  if (JoinsReserve()) return absl::OkStatus();
  const double old_mass = Mass(params_, n - 1);
  Prepare();
  bool found = SweepIn(gram_.groups().GroupOf(n - 1));
  const double new_mass = Mass(params_, n);
  if (found && old_mass < new_mass) {
    Sweep sweep;
    sweep.mass_rate = 1.0;
    sweep.length = new_mass - old_mass;
    found = Run(&sweep) != Outcome::kLost;
  }
  Start start{classes_, a_, lambda_};
  Conclude(found ? &start : nullptr);
  return absl::OkStatus();
}

absl::Status IncrementalSolver::AddSeveral(absl::Span<const double> keys) {
  LETHE_RETURN_IF_ERROR(CheckKeys(params_, keys));
  const auto count = static_cast<int64_t>(keys.size()) / params_.key_dim;
  if (count == 0) return absl::OkStatus();
  if (count == 1) return Add(keys);
  const int64_t n = gram_.num_keys() + count;
  LETHE_RETURN_IF_ERROR(CheckCount(n));
  if (gram_.groups().num_holes() > 0) Compact();
  gram_.Append(keys);
  if (IsSaturated(n)) {
    Saturate();
    return absl::OkStatus();
  }
  const double mass = Mass(params_, n);
  HoldNewGroups();
  const bool carries = MarginsHold(solution_.num_keys) && solution_.mass == mass;
  Start start =
      carries ? Carry(gram_.groups(), solution_) : SampledStart(&gram_, mass, params_.ridge);
  Conclude(ProposeFrom(&start) ? &start : nullptr);
  return absl::OkStatus();
}

bool IncrementalSolver::ProposeFrom(Start* start) {
  const Support support = SupportOf(*start, gram_.weights());
  HoldOnly(support.indices, support.totals);
  const std::vector<double> sums = HeldValues();
  const bool settled = Propose(&gram_, Mass(params_, gram_.num_keys()), params_.ridge, &factor_,
                               start, GramCache::kPassBytes, &sums);
  if (!settled) ++counters_.pivot_failures;
  return settled;
}

void IncrementalSolver::Saturate() {
  sums_.Clear();
  WipeFrom(&held_, 0);
  factor_.Clear();
  if (gram_.groups().num_holes() > 0) gram_.Compact();
  gram_.KeepOnly({});
  WipeSolution();
  solution_ = Solution();
  solution_.num_keys = gram_.num_keys();
  solution_.mass = Mass(params_, solution_.num_keys);
  solution_.classes.assign(At(solution_.num_keys), Partition::kError);
  solution_.a.assign(At(solution_.num_keys), 1.0);
  rho_is_due_ = true;
}

std::vector<int64_t> IncrementalSolver::HeldGroups() const {
  std::vector<int64_t> groups;
  for (size_t i = 0; i < held_.size(); ++i) {
    if (held_[i] != 0.0) groups.push_back(static_cast<int64_t>(i));
  }
  return groups;
}

std::vector<double> IncrementalSolver::HeldTotals(const std::vector<int64_t>& groups) const {
  std::vector<double> totals;
  totals.reserve(groups.size());
  for (const int64_t i : groups) totals.push_back(held_[At(i)]);
  return totals;
}

std::vector<int64_t> IncrementalSolver::RowsToKeep() const {
  std::vector<int64_t> groups = HeldGroups();
  const size_t row_bytes = At(gram_.num_groups()) * sizeof(double);
  const size_t room = std::max<size_t>(1, GramCache::kRowBytes / row_bytes);
  if (groups.size() <= room) return groups;
  std::stable_partition(groups.begin(), groups.end(),
                        [&](int64_t i) { return held_[At(i)] < gram_.weights()[At(i)]; });
  groups.resize(room);
  std::sort(groups.begin(), groups.end());
  return groups;
}

void IncrementalSolver::HoldNewGroups() {
  const auto num_groups = At(gram_.num_groups());
  const size_t num_new = num_groups - sums_.size();
  if (num_new > 0) {
    const std::vector<int64_t> held = HeldGroups();
    const std::vector<double> totals = HeldTotals(held);
    std::vector<double> column(held.size());
    for (size_t i = sums_.size(); i < num_groups; ++i) {
      gram_.Block(held, {static_cast<int64_t>(i)}, absl::MakeSpan(column));
      sums_.Append(column, totals);
    }
  }
  held_.resize(num_groups);
}

// Many rows that are not kept are evaluated for a block of columns at a time, whose keys stay in the
// cache.
void IncrementalSolver::Hold(const std::vector<int64_t>& groups,
                             const std::vector<double>& totals) {
  const size_t n = sums_.size();
  if (groups.size() * n * sizeof(double) <= GramCache::kPassBytes) {
    for (const int64_t group : groups) gram_.Row(group);
  }
  WipedVector<double> evaluated(kBlock);
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t count = std::min(kBlock, n - begin);
    for (size_t k = 0; k < groups.size(); ++k) {
      const double* row = gram_.Part(groups[k], static_cast<int64_t>(begin),
                                     absl::MakeSpan(evaluated).first(count));
      sums_.Change({row, count}, held_[At(groups[k])], totals[k], begin);
    }
  }
  for (size_t k = 0; k < groups.size(); ++k) held_[At(groups[k])] = totals[k];
}

void IncrementalSolver::HoldOnly(const std::vector<int64_t>& support,
                                 const std::vector<double>& totals) {
  std::vector<int64_t> changed;
  std::vector<double> wanted;
  size_t next = 0;
  for (int64_t i = 0; i < gram_.num_groups(); ++i) {
    const bool supports = next < support.size() && support[next] == i;
    const double total = supports ? totals[next++] : 0.0;
    if (held_[At(i)] == total) continue;
    changed.push_back(i);
    wanted.push_back(total);
  }
  Hold(changed, wanted);
}

std::vector<double> IncrementalSolver::HeldValues() const {
  std::vector<double> values(sums_.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] = sums_.Value(i);
  return values;
}

void IncrementalSolver::Erase(absl::Span<const int64_t> ranks) {
  for (size_t k = ranks.size(); k-- > 0;) {
    const int64_t group = gram_.groups().GroupOf(ranks[k]);
    // The sum of K with the key that goes.
    if (gram_.Erase(ranks[k]) && At(group) < sums_.size()) sums_.SetZero(At(group));
  }
  gram_.OverwriteBuffers();
}

// Holes cost a little of everything.
std::vector<int64_t> IncrementalSolver::Compact() {
  std::vector<int64_t> before = gram_.Compact();
  factor_.Clear();
  if (sums_.size() == 0) return before;
  sums_.Reorder(before);
  held_ = HeldTotals(before);
  return before;
}

absl::Status IncrementalSolver::RemoveSeveral(absl::Span<const int64_t> ranks) {
  for (size_t k = 0; k < ranks.size(); ++k) {
    if (ranks[k] < 0 || ranks[k] >= gram_.num_keys() || (k > 0 && ranks[k] <= ranks[k - 1])) {
      return absl::InvalidArgumentError(
          "ranks: ascending ranks below the number of keys are expected");
    }
  }
  if (ranks.empty()) return absl::OkStatus();
  DropRowSums();
  const int64_t left = gram_.num_keys() - static_cast<int64_t>(ranks.size());
  if (IsSaturated(left)) {
    Erase(ranks);
    Saturate();
    return absl::OkStatus();
  }
  const auto num_support = std::count_if(ranks.begin(), ranks.end(), [&](int64_t rank) {
    return solution_.classes[At(rank)] != Partition::kReserve;
  });
  if (MarginsHold(left) && num_support == 0) {
    LeaveReserve(ranks);
  } else if (MarginsHold(left) && num_support > kManySupport) {
    LeaveByProposal(ranks);
  } else {
    LeaveBySweep(ranks);
  }
  const int64_t holes = gram_.groups().num_holes();
  if (holes > std::max<int64_t>(64, gram_.num_groups() / 8)) Compact();
  return absl::OkStatus();
}

void IncrementalSolver::LeaveBySweep(absl::Span<const int64_t> ranks) {
  Prepare();
  Sweep sweep;
  sweep.loose = TakeOut(ranks);
  sweep.length = 1.0;
  const bool moves = std::any_of(sweep.loose.begin(), sweep.loose.end(),
                                 [](const Loose& copy) { return copy.a != 0.0; });
  const bool found = !moves || Run(&sweep) != Outcome::kLost;
  for (const Loose& copy : sweep.loose) {
    if (weights_[At(copy.group)] == 0.0) Hold({copy.group}, {0.0});
  }
  Erase(ranks);
  factor_.Clear();
  Start start{classes_, a_, lambda_};
  Conclude(found ? &start : nullptr);
}

void IncrementalSolver::LeaveByProposal(absl::Span<const int64_t> ranks) {
  Prepare();
  std::vector<int64_t> groups;
  std::vector<double> totals;
  for (const Loose& copy : TakeOut(ranks)) {
    groups.push_back(copy.group);
    totals.push_back(weights_[At(copy.group)] * a_[At(copy.group)]);
  }
  Hold(groups, totals);
  Erase(ranks);
  Start start;
  for (const int64_t group : Compact()) {
    start.classes.push_back(classes_[At(group)]);
    start.a.push_back(a_[At(group)]);
  }
  Refill(
      solution_.mass, gram_.weights(), [&] { return HeldValues(); }, &start);
  const bool settled = ProposeFrom(&start);
  // Its row order and its roundings come from a margin set that knew what left.
  factor_.Clear();
  gram_.OverwriteBuffers();
  Conclude(settled ? &start : nullptr);
}

void IncrementalSolver::Conclude(Start* proposal) {
  rho_is_due_ = false;
  DropRowSums();
  ++counters_.solves;
  const int64_t n = gram_.num_keys();
  const double threshold = MarginThreshold(params_, n);
  HeldSums sums(this);
  if (proposal != nullptr) LeaveBounds(proposal);
  WipeSolution();
  if (proposal != nullptr && Accept(&gram_, params_, proposal->classes, threshold, 2.0 * threshold,
                                    &factor_, &solution_, &counters_, &sums)) {
    ++counters_.accepted;
    // One function of the solution, whatever led there.
    solution_.smallest_margin = std::max(ProvedMargin(), 2.0 * threshold);
  } else {
    // The fallback goes through the keys in rank order.
    Compact();
    solution_ = Canon(&gram_, params_, nullptr, &factor_, &counters_);
    factor_.Clear();
    Prepare();  // holds the solution's totals
  }
  gram_.KeepOnly(RowsToKeep());
  // The homotopy's numbers end in roundings that a key which left had a part in.
  for (std::vector<double>* numbers : {&weights_, &a_, &gradient_, &shift_, &direction_.a,
                                       &direction_.gradient, &direction_.rates}) {
    WipeFrom(numbers, 0);
  }
  WipeFrom(&classes_, 0);
  lambda_ = direction_.lambda = direction_.speed = drift_ = reach_ = 0.0;
  active_.clear();
}

}  // namespace lethe::svdd
