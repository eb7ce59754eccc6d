#include "memory/svdd/incremental.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "memory/svdd/canon.h"
#include "memory/svdd/polish.h"
#include "memory/svdd/propose.h"

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
    Conclude(false);
    return absl::OkStatus();
  }
  Prepare();
  const int64_t added = n - 1;
  Outcome outcome = Outcome::kEnded;
  if (n > 1 && Excess(At(added)) < 0.0) {
    Sweep sweep;
    sweep.swept = {added};
    sweep.rates = {1.0};
    sweep.length = 1.0;
    sweep.entering = added;
    outcome = Run(sweep);
    if (outcome != Outcome::kLost) {
      SetClass(added, outcome == Outcome::kEntered ? Partition::kMargin : Partition::kError);
    }
  }
  const double new_mass = Mass(params_, n);
  if (outcome != Outcome::kLost && old_mass < new_mass) {
    Sweep sweep;
    sweep.mass_rate = 1.0;
    sweep.length = new_mass - old_mass;
    outcome = Run(sweep);
  }
  Conclude(outcome != Outcome::kLost);
  return absl::OkStatus();
}

absl::Status IncrementalSolver::RemoveSeveral(absl::Span<const int64_t> ranks) {
  for (size_t k = 0; k < ranks.size(); ++k) {
    if (ranks[k] < 0 || ranks[k] >= gram_.num_keys() || (k > 0 && ranks[k] <= ranks[k - 1])) {
      return absl::InvalidArgumentError(
          "ranks: ascending ranks below the number of keys are expected");
    }
  }
  const int64_t left = gram_.num_keys() - static_cast<int64_t>(ranks.size());
  bool proposal = false;
  if (static_cast<double>(left) > params_.box_mass) {
    Prepare();
    Sweep sweep;
    sweep.length = 1.0;
    bool moves = false;
    // Reserve keys among them are swept at rate 0: like the others, they must have no event of
    // their own.
    for (const int64_t rank : ranks) {
      sweep.swept.push_back(rank);
      sweep.rates.push_back(-a_[At(rank)]);
      moves |= a_[At(rank)] != 0.0;
      SetClass(rank, Partition::kReserve);
    }
    proposal = !moves || Run(sweep) != Outcome::kLost;
  }
  for (size_t k = ranks.size(); k-- > 0;) {
    gram_.Erase(ranks[k]);
    if (!proposal) continue;
    classes_.erase(classes_.begin() + ranks[k]);
    a_.erase(a_.begin() + ranks[k]);
    gradient_.erase(gradient_.begin() + ranks[k]);
  }
  Conclude(proposal);
  return absl::OkStatus();
}

// The homotopy starts at the canonical solution; new keys at a = 0.
void IncrementalSolver::Prepare() {
  const size_t n = At(gram_.num_keys());
  classes_ = solution_.classes;
  classes_.resize(n, Partition::kReserve);
  a_ = solution_.a;
  a_.resize(n, 0.0);
  std::vector<int64_t> support;
  std::vector<double> weights;
  std::vector<int64_t> margin;
  for (size_t i = 0; i < n; ++i) {
    if (classes_[i] == Partition::kReserve) continue;
    support.push_back(static_cast<int64_t>(i));
    weights.push_back(a_[i]);
    if (classes_[i] == Partition::kMargin) margin.push_back(static_cast<int64_t>(i));
  }
  WeightedRowSum(&gram_, support, weights, &gradient_);
  for (size_t i = 0; i < n; ++i) gradient_[i] = 2.0 * (gradient_[i] + params_.ridge * a_[i]);
  lambda_ = solution_.mass * (1.0 - solution_.rho);
  SyncFactor(&gram_, params_.ridge, margin, &factor_);
}

bool IncrementalSolver::IsSwept(const Sweep& sweep, int64_t index) const {
  return std::binary_search(sweep.swept.begin(), sweep.swept.end(), index);
}

void IncrementalSolver::SetClass(int64_t index, Partition place) {
  classes_[At(index)] = place;
  std::vector<int64_t> margin;
  for (size_t i = 0; i < classes_.size(); ++i) {
    if (classes_[i] == Partition::kMargin) margin.push_back(static_cast<int64_t>(i));
  }
  SyncFactor(&gram_, params_.ridge, margin, &factor_);
}

IncrementalSolver::Outcome IncrementalSolver::FillMargin(const Sweep& sweep) {
  double given = -sweep.mass_rate;
  for (const double rate : sweep.rates) given += rate;
  const bool others_give = given > 0.0;
  int64_t chosen = -1;
  for (int64_t i = 0; i < gram_.num_keys(); ++i) {
    const bool is_entering = others_give && i == sweep.entering;
    const Partition wanted = others_give ? Partition::kError : Partition::kReserve;
    if (!is_entering && (classes_[At(i)] != wanted || IsSwept(sweep, i))) continue;
    const double sign = others_give ? 1.0 : -1.0;
    if (chosen < 0 || sign * gradient_[At(i)] > sign * gradient_[At(chosen)]) chosen = i;
  }
  if (chosen < 0) return Outcome::kLost;
  lambda_ = gradient_[At(chosen)];
  if (chosen == sweep.entering) return Outcome::kEntered;
  SetClass(chosen, Partition::kMargin);
  return Outcome::kEnded;
}

IncrementalSolver::Direction IncrementalSolver::DirectionOf(const Sweep& sweep) {
  const std::vector<int64_t> ids = factor_.ids();
  const size_t s = ids.size();
  std::vector<double> cross(s, 0.0);  // 2 K_Sf d_f
  std::vector<double> column(s);
  double sum = sweep.mass_rate;
  for (size_t f = 0; f < sweep.swept.size(); ++f) {
    gram_.Block(ids, {sweep.swept[f]}, absl::MakeSpan(column));
    Axpy(2.0 * sweep.rates[f], column.data(), s, cross.data());
    sum -= sweep.rates[f];
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
  direction.a.assign(At(gram_.num_keys()), 0.0);
  std::vector<int64_t> moving = sweep.swept;
  std::vector<double> rates = sweep.rates;
  for (size_t p = 0; p < s; ++p) {
    moving.push_back(ids[p]);
    rates.push_back(direction.lambda * ones[p] - cross[p]);
  }
  for (size_t k = 0; k < moving.size(); ++k) direction.a[At(moving[k])] = rates[k];
  WeightedRowSum(&gram_, moving, rates, &direction.gradient);
  for (size_t i = 0; i < direction.a.size(); ++i) {
    direction.gradient[i] = 2.0 * (direction.gradient[i] + params_.ridge * direction.a[i]);
  }
  return direction;
}

double IncrementalSolver::EventLength(const Sweep& sweep, const Direction& direction,
                                      int64_t index) const {
  const size_t i = At(index);
  const double excess = Excess(i);
  const double rate = direction.gradient[i] - direction.lambda;
  if (index == sweep.entering) return rate > 0.0 ? std::max(0.0, -excess) / rate : kInfinity;
  if (IsSwept(sweep, index)) return kInfinity;
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

IncrementalSolver::Event IncrementalSolver::NextEvent(const Sweep& sweep,
                                                      const Direction& direction, double rest,
                                                      int64_t barred) const {
  Event event{rest, -1};
  for (int64_t i = 0; i < gram_.num_keys(); ++i) {
    const double length = EventLength(sweep, direction, i);
    if (length == 0.0 && i == barred) continue;
    if (length < event.length) event = {length, i};
  }
  return event;
}

void IncrementalSolver::Advance(const Direction& direction, double length) {
  for (size_t i = 0; i < a_.size(); ++i) {
    a_[i] += length * direction.a[i];
    gradient_[i] += length * direction.gradient[i];
  }
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

IncrementalSolver::Outcome IncrementalSolver::Run(const Sweep& sweep) {
  const int64_t limit = 20 * gram_.num_keys() + 200;
  double rest = sweep.length;
  int64_t barred = -1;
  for (int64_t events = 0; events < limit; ++events) {
    if (factor_.size() == 0) {
      const Outcome outcome = FillMargin(sweep);
      if (outcome != Outcome::kEnded) return outcome;
    }
    const Direction direction = DirectionOf(sweep);
    const Event event = NextEvent(sweep, direction, rest, barred);
    Advance(direction, event.length);
    rest -= event.length;
    ++num_events_;
    if (event.index < 0) return Outcome::kEnded;
    if (event.index == sweep.entering) return Outcome::kEntered;
    Move(event.index, direction);
    barred = event.index;
  }
  return Outcome::kLost;
}

// Canon decides; this only saves it a rejection where a tie is structural (M an integer, one margin
// key).
void IncrementalSolver::LeaveBounds() {
  for (size_t i = 0; i < a_.size(); ++i) {
    if (classes_[i] != Partition::kMargin) continue;
    if (a_[i] < kAtBound) classes_[i] = Partition::kReserve;
    if (1.0 - a_[i] < kAtBound) classes_[i] = Partition::kError;
    if (classes_[i] != Partition::kMargin) a_[i] = classes_[i] == Partition::kError ? 1.0 : 0.0;
  }
}

void IncrementalSolver::Conclude(bool proposal) {
  factor_.Clear();
  const int64_t n = gram_.num_keys();
  if (static_cast<double>(n) <= params_.box_mass) {
    CanonicalSolver solver(params_);
    LETHE_CHECK(solver.Append(gram_.keys()).ok() && solver.Solve().ok());
    solution_ = solver.solution();
    return;
  }
  ++counters_.solves;
  Start start;
  if (proposal) {
    LeaveBounds();
    start.classes = classes_;
    start.a = a_;
    start.lambda = lambda_;
  }
  solution_ = Canon(&gram_, params_, proposal ? &start : nullptr, &factor_, &counters_);
  std::vector<int64_t> support;
  for (size_t i = 0; i < solution_.classes.size(); ++i) {
    if (solution_.classes[i] != Partition::kReserve) support.push_back(static_cast<int64_t>(i));
  }
  gram_.KeepOnly(support);
}

}  // namespace lethe::svdd
