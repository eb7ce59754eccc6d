// BlockSolver: the partition of one problem, found by a team of threads from any feasible or incomplete a.
//
// Equation:  problem.h, with every key on its own (equal keys are not merged: the ridge keeps their Gram
//            matrix definite). From where svdd_block_exchange.h ends, the primal active set of primal_solver.h:
//            the linear system on S, a step to the first bound, the worst wrong signs enter, until there are
//            none. Only this says what the partition is; the exchanges save it steps.
// Shapes:    svdd_block_state.h.
// Units:     a-units.
// Requires:  n > M; workspace.a in [0, 1] with a sum of at most M; all members of the team call everything,
//            what they read synchronised.
// Rejects:   Run: false after 4 n + 200 steps, at a pivot that the factor refuses, at numbers that are none.
// Effects:   workspace.a and .classes are the result: exactly 0 on R, 1 on E.
// Numerics:  f64, a proposal: canon.h decides. Signs within 1e-11 of lambda (relative, for lambda > 1) count
//            as right; members of S within 2^-40 of a bound go to R or E at the end. Every number is a
//            function of the problem's own rows in their order and of the team's size.
//            Cost: n^2 for the sums, about 3 n an exchange, n |S| + |S|^2 a step.
// Threads:   one team.
#ifndef LETHE_MEMORY_SVDD_SVDD_BLOCK_SOLVE_H_
#define LETHE_MEMORY_SVDD_SVDD_BLOCK_SOLVE_H_

#include <cmath>
#include <cstdint>

#include "memory/svdd/svdd_block_exchange.h"
#include "memory/svdd/svdd_block_factor.h"
#include "memory/svdd/svdd_block_state.h"
#include "memory/svdd/svdd_team.h"

namespace lethe::svdd {

inline constexpr int kEnterAtOnce = 32;

template <typename Team>
class BlockSolver {
 public:
  LETHE_TEAM_CODE BlockSolver(Team* team, const BlockProblem& problem,
                              const BlockWorkspace& workspace)
      : team_(team),
        problem_(problem),
        work_(workspace),
        factor_(team, problem, workspace),
        n_(problem.head->num_keys),
        mass_(problem.head->box_mass),
        ridge_(problem.head->ridge) {}

  LETHE_TEAM_CODE bool Run();

  LETHE_TEAM_CODE double lambda() const { return lambda_; }
  LETHE_TEAM_CODE int num_exchanges() const { return num_exchanges_; }
  LETHE_TEAM_CODE int num_steps() const { return num_steps_; }
  // Positions of the large factor that Run wrote to; 0: it did not.
  LETHE_TEAM_CODE int large_factor() const { return factor_.large_capacity(); }

 private:
  // to = factor * (sum of the rows in list[0 … count - 1]).
  LETHE_TEAM_CODE void SumRows(const int32_t* list, int count, double factor, double* to) const;
  LETHE_TEAM_CODE bool ActiveSet();
  LETHE_TEAM_CODE void Classify();
  // The solution on S, and the way to it up to the first bound.
  enum class Way { kWhole, kBlocked, kLost };
  LETHE_TEAM_CODE Way Step();
  LETHE_TEAM_CODE Best FirstBound() const;
  LETHE_TEAM_CODE void MoveError(int32_t row, double sign);
  LETHE_TEAM_CODE void UpdateGradient();
  // lambda with an empty margin set; a key of E that has it as its gradient.
  LETHE_TEAM_CODE int32_t EmptyMarginLambda();
  // At most `limit` of the worst signs get into list; how many.
  LETHE_TEAM_CODE int FindWrong(int limit);
  LETHE_TEAM_CODE bool Enter(int count);
  // Every gradient is finite: a comparison with one that is none says nothing.
  LETHE_TEAM_CODE bool HasNumbers();
  LETHE_TEAM_CODE void LeaveBounds();

  Team* team_;
  const BlockProblem& problem_;
  const BlockWorkspace& work_;
  BlockFactor<Team> factor_;
  int n_;
  double mass_;
  double ridge_;
  double lambda_ = 0.0;
  double error_count_ = 0.0;
  int num_exchanges_ = 0;
  int num_steps_ = 0;
};

template <typename Team>
LETHE_TEAM_CODE bool BlockSolver<Team>::Run() {
  BlockExchange<Team> exchange(team_, problem_, work_);
  exchange.Run();
  num_exchanges_ = exchange.num_exchanges();
  if (!ActiveSet()) return false;
  LeaveBounds();
  return true;
}

template <typename Team>
LETHE_TEAM_CODE void BlockSolver<Team>::SumRows(const int32_t* list, int count, double factor,
                                                double* to) const {
  for (int i = team_->rank(); i < n_; i += team_->size()) {
    double sum = 0.0;
    LETHE_TEAM_UNROLL
    for (int t = 0; t < count; ++t) sum += problem_.Row(list[t])[i];
    to[i] = factor * sum;
  }
}

template <typename Team>
LETHE_TEAM_CODE void BlockSolver<Team>::Classify() {
  double* a = work_.a;
  TwoSums errors;
  for (int i = team_->rank(); i < n_; i += team_->size()) {
    const bool is_error = a[i] >= 1.0;
    work_.classes[i] = is_error ? kBlockError : a[i] > 0.0 ? kBlockMargin : kBlockReserve;
    a[i] = is_error ? 1.0 : a[i] > 0.0 ? a[i] : 0.0;
    errors.first += is_error ? 1.0 : 0.0;
  }
  error_count_ = team_->Sum(errors).first;
  team_->Sync();
  const uint8_t* classes = work_.classes;
  const int count = team_->Compact(
      n_, [classes](int i) { return classes[i] == kBlockError ? i : -1; }, work_.list);
  SumRows(work_.list, count, 2.0, work_.error_part);
  team_->Sync();
}

template <typename Team>
LETHE_TEAM_CODE bool BlockSolver<Team>::ActiveSet() {
  Classify();
  const uint8_t* classes = work_.classes;
  const int margin = team_->Compact(
      n_, [classes](int i) { return classes[i] == kBlockMargin ? i : -1; }, work_.margin);
  if (!factor_.Build(margin)) return false;
  const int limit = 4 * n_ + 200;
  int block = kEnterAtOnce;
  int steps_before = 0;
  while (num_steps_ < limit) {
    ++num_steps_;
    if (factor_.live() > 0) {
      const Way way = Step();
      if (way == Way::kLost) return false;
      if (way == Way::kBlocked) continue;
    }
    UpdateGradient();
    const bool is_empty = factor_.live() == 0;
    const int32_t partner = is_empty ? EmptyMarginLambda() : -1;
    if (is_empty && partner < 0) return false;
    int wrong = FindWrong(block);
    if (wrong == 0) return HasNumbers();
    // With an empty margin set the key of E with the largest gradient must give what the others take.
    if (is_empty) {
      if (team_->rank() == 0) work_.list[wrong] = partner;
      ++wrong;
      team_->Sync();
    }
    if (!Enter(wrong)) return false;
    // Few steps since the last block: most of it stayed. Many: it pushed against the bounds.
    const int steps = num_steps_ - steps_before;
    steps_before = num_steps_;
    block = 2 * steps <= block ? 2 * block : block / 2;
    block = block < 1 ? 1 : block > kEnterAtOnce ? kEnterAtOnce : block;
  }
  return false;
}

template <typename Team>
LETHE_TEAM_CODE Best BlockSolver<Team>::FirstBound() const {
  Best first;
  for (int p = team_->rank(); p < factor_.size(); p += team_->size()) {
    const int32_t row = work_.margin[p];
    if (row < 0) continue;
    const double from = work_.a[row];
    const double to = work_.target[p];
    double length = 1.0;
    if (to < 0.0) length = from / (from - to);
    if (to > 1.0) length = (1.0 - from) / (to - from);
    if (length < 1.0) first = Lesser(first, {length, p});
  }
  return team_->Least(first);
}

template <typename Team>
LETHE_TEAM_CODE typename BlockSolver<Team>::Way BlockSolver<Team>::Step() {
  for (int p = team_->rank(); p < factor_.size(); p += team_->size()) {
    const int32_t row = work_.margin[p];
    work_.ones[p] = row < 0 ? 0.0 : 1.0;
    work_.target[p] = row < 0 ? 0.0 : work_.error_part[row];
  }
  factor_.SolveLower(work_.ones, work_.target);
  TwoSums sums;
  for (int p = team_->rank(); p < factor_.size(); p += team_->size()) {
    sums.first = std::fma(work_.ones[p], work_.target[p], sums.first);
    sums.second = std::fma(work_.ones[p], work_.ones[p], sums.second);
  }
  sums = team_->Sum(sums);
  // lambda = (c + 1'A^-1 b)/(1'A^-1 1), a = A^-1 (lambda 1 - b).
  lambda_ = ((mass_ - error_count_) + sums.first) / sums.second;
  if (!(lambda_ > -kTeamInfinity && lambda_ < kTeamInfinity)) return Way::kLost;
  for (int p = team_->rank(); p < factor_.size(); p += team_->size()) {
    work_.target[p] = std::fma(lambda_, work_.ones[p], -work_.target[p]);
  }
  factor_.SolveUpper(work_.target);
  const Best first = FirstBound();
  bool to_error = false;
  int32_t leaving = -1;
  if (first.index >= 0) {
    leaving = work_.margin[first.index];
    to_error = work_.target[first.index] > 0.0;
  }
  team_->Sync();
  for (int p = team_->rank(); p < factor_.size(); p += team_->size()) {
    const int32_t row = work_.margin[p];
    if (row < 0) continue;
    double& a = work_.a[row];
    a = leaving < 0 ? work_.target[p] : std::fma(first.value, work_.target[p] - a, a);
    if (p == first.index) {
      a = to_error ? 1.0 : 0.0;
      work_.classes[row] = to_error ? kBlockError : kBlockReserve;
    }
  }
  if (leaving < 0) {
    team_->Sync();
    return Way::kWhole;
  }
  if (to_error) MoveError(leaving, 1.0);
  factor_.Remove(first.index);
  return Way::kBlocked;
}

template <typename Team>
LETHE_TEAM_CODE void BlockSolver<Team>::MoveError(int32_t row, double sign) {
  error_count_ += sign;
  const double* gram = problem_.Row(row);
  for (int i = team_->rank(); i < n_; i += team_->size()) {
    work_.error_part[i] = std::fma(2.0 * sign, gram[i], work_.error_part[i]);
  }
}

template <typename Team>
LETHE_TEAM_CODE void BlockSolver<Team>::UpdateGradient() {
  const int size = factor_.size();
  for (int p = team_->rank(); p < size; p += team_->size()) {
    const int32_t row = work_.margin[p];
    work_.ones[p] = row < 0 ? 0.0 : 2.0 * work_.a[row];
    work_.list[p] = row < 0 ? 0 : row;
  }
  team_->Sync();
  for (int i = team_->rank(); i < n_; i += team_->size()) {
    double sum = std::fma(2.0 * ridge_, work_.a[i], work_.error_part[i]);
    LETHE_TEAM_UNROLL
    for (int p = 0; p < size; ++p) {
      sum = std::fma(work_.ones[p], problem_.Row(work_.list[p])[i], sum);
    }
    work_.gradient[i] = sum;
  }
  team_->Sync();
}

template <typename Team>
LETHE_TEAM_CODE int32_t BlockSolver<Team>::EmptyMarginLambda() {
  Best largest;
  for (int i = team_->rank(); i < n_; i += team_->size()) {
    if (work_.classes[i] == kBlockError) largest = Lesser(largest, {-work_.gradient[i], i});
  }
  largest = team_->Least(largest);
  lambda_ = -largest.value;
  return largest.index;
}

template <typename Team>
LETHE_TEAM_CODE int BlockSolver<Team>::FindWrong(int limit) {
  const double slack = 1e-11 * (lambda_ > 1.0 ? lambda_ : 1.0);
  int count = 0;
  while (count < limit) {
    Best worst;
    for (int i = team_->rank(); i < n_; i += team_->size()) {
      const uint8_t place = work_.classes[i];
      if (place == kBlockMargin) continue;
      const double excess = work_.gradient[i] - lambda_;
      const double violation = place == kBlockError ? excess : -excess;
      if (violation > slack) worst = Lesser(worst, {-violation, i});
    }
    worst = team_->Least(worst);
    if (worst.index < 0) break;
    const bool was_error = work_.classes[worst.index] == kBlockError;
    team_->Sync();
    if (team_->rank() == 0) {
      work_.classes[worst.index] = kBlockMargin;
      work_.list[count] = worst.index;
    }
    ++count;
    if (was_error) MoveError(worst.index, -1.0);
    team_->Sync();
  }
  return count;
}

template <typename Team>
LETHE_TEAM_CODE bool BlockSolver<Team>::Enter(int count) {
  // The partner of an empty margin set is still in E.
  const int32_t last = work_.list[count - 1];
  const bool is_error = work_.classes[last] == kBlockError;
  team_->Sync();
  if (is_error) {
    if (team_->rank() == 0) work_.classes[last] = kBlockMargin;
    MoveError(last, -1.0);
    team_->Sync();
  }
  // A few appends cost less than a factorisation, which also leaves out the positions that are of no use.
  const int live = factor_.live();
  if (factor_.size() + count > factor_.capacity() || count >= 3 + live / 48 ||
      factor_.size() - live > 16 + live / 4) {
    return factor_.Rebuild(work_.list, count);
  }
  for (int t = 0; t < count; ++t) {
    if (!factor_.Append(work_.list[t])) return false;
  }
  return true;
}

template <typename Team>
LETHE_TEAM_CODE bool BlockSolver<Team>::HasNumbers() {
  TwoSums none;
  for (int i = team_->rank(); i < n_; i += team_->size()) {
    const double gradient = work_.gradient[i];
    if (!(gradient > -kTeamInfinity && gradient < kTeamInfinity)) none.first += 1.0;
  }
  return team_->Sum(none).first == 0.0;
}

template <typename Team>
LETHE_TEAM_CODE void BlockSolver<Team>::LeaveBounds() {
  constexpr double kAtBound = 0x1.0p-40;
  TwoSums stay;
  for (int i = team_->rank(); i < n_; i += team_->size()) {
    if (work_.classes[i] != kBlockMargin) continue;
    double& a = work_.a[i];
    if (a < kAtBound) work_.classes[i] = kBlockReserve;
    if (1.0 - a < kAtBound) work_.classes[i] = kBlockError;
    if (work_.classes[i] == kBlockMargin) {
      stay.first += 1.0;
    } else {
      a = work_.classes[i] == kBlockError ? 1.0 : 0.0;
    }
  }
  team_->Sync();
  if (team_->Sum(stay).first == 0.0) EmptyMarginLambda();
}

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_SVDD_BLOCK_SOLVE_H_
