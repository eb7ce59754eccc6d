#include "memory/svdd/incremental.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "memory/svdd/canon.h"
#include "memory/svdd/polish.h"

namespace lethe::svdd {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kAtBound = 0x1.0p-40;

size_t At(int64_t index) { return static_cast<size_t>(index); }

absl::Status TooManyKeys() {
  return absl::FailedPreconditionError("too many keys for this ridge: n u_kappa exceeds ridge/2");
}

}  // namespace

IncrementalSolver::IncrementalSolver(const Params& params)
    : params_(params), gram_(params.sigma, params.key_dim), factor_(params.ridge) {}

absl::Status IncrementalSolver::Add(absl::Span<const double> key) {
  LETHE_RETURN_IF_ERROR(CheckKeys(params_, key));
  if (static_cast<int64_t>(key.size()) != params_.key_dim) {
    return absl::InvalidArgumentError("key: key_dim components are expected");
  }
  const int64_t n = gram_.num_keys() + 1;
  if (RidgeLower(params_, n) < 0.5 * params_.ridge) return TooManyKeys();
  const double old_mass = Mass(params_, n - 1);
  gram_.Append(key);
  if (static_cast<double>(n) <= params_.box_mass) {
    Conclude(nullptr);
    return absl::OkStatus();
  }
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

absl::Status IncrementalSolver::RemoveSeveral(absl::Span<const int64_t> ranks) {
  for (size_t k = 0; k < ranks.size(); ++k) {
    if (ranks[k] < 0 || ranks[k] >= gram_.num_keys() || (k > 0 && ranks[k] <= ranks[k - 1])) {
      return absl::InvalidArgumentError(
          "ranks: ascending ranks below the number of keys are expected");
    }
  }
  const int64_t left = gram_.num_keys() - static_cast<int64_t>(ranks.size());
  bool found = false;
  if (static_cast<double>(left) > params_.box_mass) {
    Prepare();
    Sweep sweep;
    sweep.loose = TakeOut(ranks);
    sweep.length = 1.0;
    const bool moves = std::any_of(sweep.loose.begin(), sweep.loose.end(),
                                   [](const Loose& copy) { return copy.a != 0.0; });
    found = !moves || Run(&sweep) != Outcome::kLost;
  }
  // Groups may go or change places: the proposal crosses over by rank.
  std::vector<Partition> classes;
  std::vector<double> a;
  if (found) {
    classes = gram_.groups().ToRanks(absl::MakeConstSpan(classes_));
    a = gram_.groups().ToRanks(absl::MakeConstSpan(a_));
  }
  for (size_t k = ranks.size(); k-- > 0;) {
    gram_.Erase(ranks[k]);
    if (!found) continue;
    classes.erase(classes.begin() + ranks[k]);
    a.erase(a.begin() + ranks[k]);
  }
  Start start;
  start.lambda = lambda_;
  for (int64_t group = 0; found && group < gram_.num_groups(); ++group) {
    const size_t rank = At(gram_.groups().FirstRank(group));
    start.classes.push_back(classes[rank]);
    start.a.push_back(a[rank]);
  }
  Conclude(found ? &start : nullptr);
  return absl::OkStatus();
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
    if (classes_[i] == Partition::kReserve) continue;
    support.push_back(static_cast<int64_t>(i));
    totals.push_back(weights_[i] * a_[i]);
  }
  WeightedRowSum(&gram_, support, totals, &gradient_);
  for (size_t i = 0; i < num_groups; ++i) {
    gradient_[i] = 2.0 * (gradient_[i] + params_.ridge * a_[i]);
  }
  lambda_ = solution_.mass * (1.0 - solution_.rho);
  SyncMargin();
}

double IncrementalSolver::LooseGradient(const Loose& copy) const {
  const size_t i = At(copy.group);
  return gradient_[i] + 2.0 * params_.ridge * (copy.a - a_[i]);
}

void IncrementalSolver::SyncMargin() {
  std::vector<int64_t> margin;
  for (size_t i = 0; i < classes_.size(); ++i) {
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

IncrementalSolver::Direction IncrementalSolver::DirectionOf(const Sweep& sweep) {
  const std::vector<int64_t> ids = factor_.ids();
  const size_t s = ids.size();
  std::vector<double> cross(s, 0.0);  // 2 K_Sf d_f
  std::vector<double> column(s);
  std::vector<int64_t> moving;
  std::vector<double> rates;  // of totals
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
  Direction direction;
  direction.lambda = sum / ones_sum;
  direction.a.assign(At(gram_.num_groups()), 0.0);
  for (size_t p = 0; p < s; ++p) {
    moving.push_back(ids[p]);
    rates.push_back(direction.lambda * ones[p] - cross[p]);
    direction.a[At(ids[p])] = rates.back() / weights_[At(ids[p])];
  }
  WeightedRowSum(&gram_, moving, rates, &direction.gradient);
  for (size_t i = 0; i < direction.a.size(); ++i) {
    direction.gradient[i] = 2.0 * (direction.gradient[i] + params_.ridge * direction.a[i]);
  }
  return direction;
}

double IncrementalSolver::EventLength(const Direction& direction, int64_t index) const {
  const size_t i = At(index);
  if (weights_[i] == 0.0) return kInfinity;
  const double excess = Excess(i);
  const double rate = direction.gradient[i] - direction.lambda;
  switch (classes_[i]) {
    case Partition::kMargin:
      if (direction.a[i] < 0.0) return std::max(0.0, a_[i]) / -direction.a[i];
      if (direction.a[i] > 0.0) return std::max(0.0, 1.0 - a_[i]) / direction.a[i];
      return kInfinity;
    case Partition::kError:
      return rate > 0.0 ? std::max(0.0, -excess) / rate : kInfinity;
    case Partition::kReserve:
      return rate < 0.0 ? std::max(0.0, excess) / -rate : kInfinity;
  }
  return kInfinity;
}

double IncrementalSolver::EnteringLength(const Loose& copy, const Direction& direction) const {
  const size_t i = At(copy.group);
  const double rate =
      direction.gradient[i] + 2.0 * params_.ridge * (copy.rate - direction.a[i]) - direction.lambda;
  return rate > 0.0 ? std::max(0.0, lambda_ - LooseGradient(copy)) / rate : kInfinity;
}

IncrementalSolver::Event IncrementalSolver::NextEvent(const Sweep& sweep,
                                                      const Direction& direction, double rest,
                                                      int64_t barred) const {
  Event event{rest, kEnd};
  for (int64_t i = 0; i < gram_.num_groups(); ++i) {
    const double length = EventLength(direction, i);
    if (length == 0.0 && i == barred) continue;
    if (length < event.length) event = {length, i};
  }
  if (sweep.enters) {
    const double length = EnteringLength(sweep.loose[0], direction);
    if (length < event.length) event = {length, kEnters};
  }
  return event;
}

void IncrementalSolver::Advance(const Direction& direction, double length, Sweep* sweep) {
  for (size_t i = 0; i < a_.size(); ++i) {
    a_[i] += length * direction.a[i];
    gradient_[i] += length * direction.gradient[i];
  }
  for (Loose& copy : sweep->loose) copy.a += length * copy.rate;
  lambda_ += length * direction.lambda;
}

// The key crosses between S and the set its event names.
void IncrementalSolver::Move(int64_t index, const Direction& direction) {
  const size_t i = At(index);
  if (classes_[i] != Partition::kMargin) {
    SetClass(index, Partition::kMargin);
    return;
  }
  const bool to_error = direction.a[i] > 0.0;
  a_[i] = to_error ? 1.0 : 0.0;
  SetClass(index, to_error ? Partition::kError : Partition::kReserve);
}

IncrementalSolver::Outcome IncrementalSolver::Run(Sweep* sweep) {
  const int64_t limit = 20 * gram_.num_keys() + 200;
  double rest = sweep->length;
  int64_t barred = kEnd;
  for (int64_t events = 0; events < limit; ++events) {
    if (factor_.size() == 0) {
      const Outcome outcome = FillMargin(*sweep);
      if (outcome != Outcome::kEnded) return outcome;
    }
    const Direction direction = DirectionOf(*sweep);
    const Event event = NextEvent(*sweep, direction, rest, barred);
    Advance(direction, event.length, sweep);
    rest -= event.length;
    ++num_events_;
    if (event.index == kEnd) return Outcome::kEnded;
    if (event.index == kEnters) return Outcome::kEntered;
    Move(event.index, direction);
    barred = event.index;
  }
  return Outcome::kLost;
}

// Canon decides; this only saves it a rejection where a tie is structural (M an integer, one margin
// key).
void IncrementalSolver::LeaveBounds(Start* start) const {
  for (size_t i = 0; i < start->a.size(); ++i) {
    Partition& place = start->classes[i];
    if (place != Partition::kMargin) continue;
    if (start->a[i] < kAtBound) place = Partition::kReserve;
    if (1.0 - start->a[i] < kAtBound) place = Partition::kError;
    if (place != Partition::kMargin) start->a[i] = place == Partition::kError ? 1.0 : 0.0;
  }
}

void IncrementalSolver::Conclude(Start* proposal) {
  factor_.Clear();
  if (static_cast<double>(gram_.num_keys()) <= params_.box_mass) {
    CanonicalSolver solver(params_);
    LETHE_CHECK(solver.Append(keys()).ok() && solver.Solve().ok());
    solution_ = solver.solution();
    return;
  }
  ++counters_.solves;
  if (proposal != nullptr) LeaveBounds(proposal);
  solution_ = Canon(&gram_, params_, proposal, &factor_, &counters_);
  gram_.KeepOnly(SupportGroups(gram_.groups(), solution_));
}

}  // namespace lethe::svdd
