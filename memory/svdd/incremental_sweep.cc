// The sweeps of IncrementalSolver (incremental.h).
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "memory/svdd/incremental.h"
#include "memory/svdd/polish.h"
#include "memory/svdd/weighted_row_sum.h"

namespace lethe::svdd {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// How far from a crossing a key may be, in what the sweep moves, to be watched from its start.
constexpr double kReach = 8.0;

size_t At(int64_t index) { return static_cast<size_t>(index); }

}  // namespace

bool IncrementalSolver::SweepIn(int64_t group) {
  Sweep sweep;
  sweep.loose.push_back({group, 1.0, 0.0, 1.0});
  sweep.length = 1.0;
  sweep.enters = true;
  if (LooseGradient(sweep.loose[0]) >= lambda_) {
    weights_[At(group)] += 1.0;  // in reserve, like its equals
    return true;
  }
  const Outcome outcome = Run(&sweep);
  if (outcome == Outcome::kLost) return false;
  Join(sweep.loose[0], outcome);
  return true;
}

void IncrementalSolver::Join(const Loose& copy, Outcome outcome) {
  const size_t i = At(copy.group);
  const double others = weights_[i];
  const bool at_bound = outcome == Outcome::kEnded && (others == 0.0 || a_[i] == 1.0);
  weights_[i] += copy.count;
  const double a = at_bound ? 1.0 : (others * a_[i] + copy.count * copy.a) / weights_[i];
  gradient_[i] += 2.0 * params_.ridge * (a - a_[i]);
  a_[i] = a;
  SetClass(copy.group, at_bound ? Partition::kError : Partition::kMargin);
}

std::vector<IncrementalSolver::Loose> IncrementalSolver::TakeOut(absl::Span<const int64_t> ranks) {
  std::vector<double> counts(weights_.size(), 0.0);
  for (const int64_t rank : ranks) counts[At(gram_.groups().GroupOf(rank))] += 1.0;
  std::vector<Loose> loose;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0.0) continue;
    loose.push_back({static_cast<int64_t>(i), counts[i], a_[i], -a_[i]});
    weights_[i] -= counts[i];
    if (weights_[i] > 0.0) continue;
    gradient_[i] -= 2.0 * params_.ridge * a_[i];
    a_[i] = 0.0;
    classes_[i] = Partition::kReserve;
  }
  SyncMargin();
  return loose;
}

void IncrementalSolver::Prepare() {
  const KeyGroups& groups = gram_.groups();
  const size_t num_groups = At(groups.num_groups());
  weights_.assign(num_groups, 0.0);
  classes_.assign(num_groups, Partition::kReserve);
  a_.assign(num_groups, 0.0);
  for (int64_t rank = 0; rank < solution_.num_keys; ++rank) {
    const size_t i = At(groups.GroupOf(rank));
    weights_[i] += 1.0;
    classes_[i] = solution_.classes[At(rank)];
    a_[i] = solution_.a[At(rank)];
  }
  std::vector<int64_t> support;
  std::vector<double> totals;
  for (size_t i = 0; i < num_groups; ++i) {
    if (classes_[i] == Partition::kReserve || weights_[i] == 0.0) continue;
    support.push_back(static_cast<int64_t>(i));
    totals.push_back(weights_[i] * a_[i]);
  }
  HoldOnly(support, totals);
  gradient_.resize(num_groups);
  for (size_t i = 0; i < num_groups; ++i) {
    gradient_[i] = 2.0 * (sums_.Value(i) + params_.ridge * a_[i]);
  }
  lambda_ = solution_.mass * (1.0 - solution_.rho);
  if (rho_is_due_) {  // lambda: the largest gradient of E, here of all that counted
    lambda_ = 0.0;
    for (size_t i = 0; i < num_groups; ++i) {
      if (weights_[i] > 0.0) lambda_ = std::max(lambda_, gradient_[i]);
    }
  }
  active_.clear();
  shifted_.clear();
  shift_.assign(num_groups, 0.0);
  direction_.a.resize(num_groups);
  direction_.gradient.resize(num_groups);
  SyncMargin();
}

// Gradients of keys far from a crossing are left behind until the sweep may have come near them: no
// gradient moves faster than 2 sum |dT|, and lambda beside it.
void IncrementalSolver::Activate(const Sweep& sweep, double reach) {
  if (!shifted_.empty()) {
    std::vector<double> shifts(shifted_.size());
    for (size_t k = 0; k < shifted_.size(); ++k) {
      shifts[k] = std::exchange(shift_[At(shifted_[k])], 0.0);
    }
    std::vector<double> sums;
    WeightedRowSum(&gram_, shifted_, shifts, &sums);
    shifted_.clear();
    for (const int64_t i : active_) sums[At(i)] = 0.0;  // kept up to date
    for (size_t i = 0; i < sums.size(); ++i) gradient_[i] += 2.0 * sums[i];
  }
  active_.clear();
  size_t next = 0;  // of the loose groups, which ascend
  for (int64_t i = 0; i < gram_.num_groups(); ++i) {
    const bool is_loose = next < sweep.loose.size() && sweep.loose[next].group == i;
    next += is_loose ? 1 : 0;
    const bool is_near = weights_[At(i)] > 0.0 && std::abs(Excess(At(i))) <= reach;
    if (is_loose || is_near || classes_[At(i)] == Partition::kMargin) active_.push_back(i);
  }
  reach_ = reach;
  drift_ = 0.0;
}

double IncrementalSolver::LooseGradient(const Loose& copy) const {
  const size_t i = At(copy.group);
  return gradient_[i] + 2.0 * params_.ridge * (copy.a - a_[i]);
}

void IncrementalSolver::SyncMargin() {
  std::vector<int64_t> margin;
  for (const int64_t i : active_) {
    if (classes_[At(i)] == Partition::kMargin) margin.push_back(i);
  }
  for (size_t i = 0; active_.empty() && i < classes_.size(); ++i) {
    if (classes_[i] == Partition::kMargin) margin.push_back(static_cast<int64_t>(i));
  }
  SyncFactor(&gram_, weights_, margin, &factor_);
}

void IncrementalSolver::SetClass(int64_t index, Partition place) {
  classes_[At(index)] = place;
  SyncMargin();
}

IncrementalSolver::Outcome IncrementalSolver::FillMargin(const Sweep& sweep) {
  double given = -sweep.mass_rate;
  for (const Loose& copy : sweep.loose) given += copy.count * copy.rate;
  const bool others_give = given > 0.0;
  const Partition wanted = others_give ? Partition::kError : Partition::kReserve;
  const double sign = others_give ? 1.0 : -1.0;
  int64_t chosen = -1;
  for (int64_t i = 0; i < gram_.num_groups(); ++i) {
    if (classes_[At(i)] != wanted || weights_[At(i)] == 0.0) continue;
    if (chosen < 0 || sign * gradient_[At(i)] > sign * gradient_[At(chosen)]) chosen = i;
  }
  if (others_give && sweep.enters) {
    const double own = LooseGradient(sweep.loose[0]);
    if (chosen < 0 || own > gradient_[At(chosen)]) {
      lambda_ = own;
      return Outcome::kEntered;
    }
  }
  if (chosen < 0) return Outcome::kLost;
  lambda_ = gradient_[At(chosen)];
  SetClass(chosen, Partition::kMargin);
  return Outcome::kEnded;
}

void IncrementalSolver::FindDirection(const Sweep& sweep) {
  const std::vector<int64_t> ids = factor_.ids();
  const size_t s = ids.size();
  std::vector<double> cross(s, 0.0);  // 2 K_Sf d_f
  std::vector<double> column(s);
  std::vector<int64_t>& moving = direction_.moving;
  std::vector<double>& rates = direction_.rates;
  moving.clear();
  rates.clear();
  double sum = sweep.mass_rate;
  for (const Loose& copy : sweep.loose) {
    const double rate = copy.count * copy.rate;
    gram_.Block(ids, {copy.group}, absl::MakeSpan(column));
    Axpy(2.0 * rate, column.data(), s, cross.data());
    sum -= rate;
    moving.push_back(copy.group);
    rates.push_back(rate);
  }
  std::vector<double> ones(s, 1.0);
  factor_.Solve(absl::MakeSpan(ones));
  factor_.Solve(absl::MakeSpan(cross));
  double ones_sum = 0.0;
  for (size_t p = 0; p < s; ++p) {
    ones_sum += ones[p];
    sum += cross[p];
  }
  direction_.lambda = sum / ones_sum;
  for (const int64_t i : active_) direction_.a[At(i)] = direction_.gradient[At(i)] = 0.0;
  for (size_t p = 0; p < s; ++p) {
    moving.push_back(ids[p]);
    rates.push_back(direction_.lambda * ones[p] - cross[p]);
    direction_.a[At(ids[p])] = rates.back() / weights_[At(ids[p])];
  }
  direction_.speed = std::abs(direction_.lambda);
  for (const double rate : rates) direction_.speed += 2.0 * std::abs(rate);
  if (4 * active_.size() > direction_.gradient.size()) {  // whole rows are read faster
    WeightedRowSum(&gram_, moving, rates, &direction_.gradient);
  } else {
    for (size_t j = 0; j < moving.size(); ++j) {
      const absl::Span<const double> row = gram_.Row(moving[j]);
      for (const int64_t i : active_) direction_.gradient[At(i)] += rates[j] * row[At(i)];
    }
  }
  for (const int64_t i : active_) {
    double& gradient = direction_.gradient[At(i)];
    gradient = 2.0 * (gradient + params_.ridge * direction_.a[At(i)]);
  }
}

double IncrementalSolver::EventLength(int64_t index) const {
  const size_t i = At(index);
  if (weights_[i] == 0.0) return kInfinity;
  const double excess = Excess(i);
  const double rate = direction_.gradient[i] - direction_.lambda;
  switch (classes_[i]) {
    case Partition::kMargin:
      if (direction_.a[i] < 0.0) return std::max(0.0, a_[i]) / -direction_.a[i];
      if (direction_.a[i] > 0.0) return std::max(0.0, 1.0 - a_[i]) / direction_.a[i];
      return kInfinity;
    case Partition::kError:
      return rate > 0.0 ? std::max(0.0, -excess) / rate : kInfinity;
    case Partition::kReserve:
      return rate < 0.0 ? std::max(0.0, excess) / -rate : kInfinity;
  }
  return kInfinity;
}

double IncrementalSolver::EnteringLength(const Loose& copy) const {
  const size_t i = At(copy.group);
  const double rate = direction_.gradient[i] + 2.0 * params_.ridge * (copy.rate - direction_.a[i]) -
                      direction_.lambda;
  return rate > 0.0 ? std::max(0.0, lambda_ - LooseGradient(copy)) / rate : kInfinity;
}

IncrementalSolver::Event IncrementalSolver::NextEvent(const Sweep& sweep, double rest,
                                                      int64_t barred) const {
  Event event{rest, kEnd};
  for (const int64_t i : active_) {
    const double length = EventLength(i);
    if (length == 0.0 && i == barred) continue;
    if (length < event.length) event = {length, i};
  }
  if (sweep.enters) {
    const double length = EnteringLength(sweep.loose[0]);
    if (length < event.length) event = {length, kEnters};
  }
  return event;
}

void IncrementalSolver::Advance(double length, Sweep* sweep) {
  for (const int64_t i : active_) {
    a_[At(i)] += length * direction_.a[At(i)];
    gradient_[At(i)] += length * direction_.gradient[At(i)];
  }
  for (size_t j = 0; j < direction_.moving.size(); ++j) {
    double& shift = shift_[At(direction_.moving[j])];
    if (shift == 0.0) shifted_.push_back(direction_.moving[j]);
    shift += length * direction_.rates[j];
  }
  for (Loose& copy : sweep->loose) copy.a += length * copy.rate;
  lambda_ += length * direction_.lambda;
  drift_ += length * direction_.speed;
}

// The key crosses between S and the set its event names.
void IncrementalSolver::Move(int64_t index) {
  const size_t i = At(index);
  if (classes_[i] != Partition::kMargin) {
    SetClass(index, Partition::kMargin);
    return;
  }
  const bool to_error = direction_.a[i] > 0.0;
  a_[i] = to_error ? 1.0 : 0.0;
  SetClass(index, to_error ? Partition::kError : Partition::kReserve);
}

IncrementalSolver::Outcome IncrementalSolver::Run(Sweep* sweep) {
  const int64_t limit = 20 * gram_.num_keys() + 200;
  double rest = sweep->length;
  int64_t barred = kEnd;
  double moved = std::abs(sweep->mass_rate);
  for (const Loose& copy : sweep->loose) moved += copy.count * std::abs(copy.rate);
  Activate(*sweep, kReach * moved * rest);
  for (int64_t events = 0; events < limit; ++events) {
    if (factor_.size() == 0) {
      Activate(*sweep, kInfinity);
      const Outcome outcome = FillMargin(*sweep);
      if (outcome != Outcome::kEnded) return outcome;
    }
    FindDirection(*sweep);
    Event event = NextEvent(*sweep, rest, barred);
    if (drift_ + event.length * direction_.speed > reach_) {
      Activate(*sweep, std::max(4.0 * reach_, 2.0 * event.length * direction_.speed));
      FindDirection(*sweep);
      event = NextEvent(*sweep, rest, barred);
    }
    Advance(event.length, sweep);
    rest -= event.length;
    ++num_events_;
    if (event.index == kEnd) return Outcome::kEnded;
    if (event.index == kEnters) return Outcome::kEntered;
    Move(event.index);
    barred = event.index;
  }
  return Outcome::kLost;
}

}  // namespace lethe::svdd
