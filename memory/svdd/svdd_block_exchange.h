// BlockExchange: from any a whose sum may lack mass to one near the optimum, by a team of threads.
//
// Equation:  problem.h, with every key on its own. While mass is missing, the key with the smallest gradient takes as
//            much as it can; then exchanges between two keys (sequential minimal optimisation; Platt 1998, with the
//            second choice of Fan, Chen and Lin 2005), until no gradient of a key that may give exceeds that of
//            one that may take by more than kExchangeGap, or exchanges_per_key n of them.
// Shapes:    svdd_block_state.h.
// Units:     a-units.
// Requires:  workspace.a in [0, 1] with a sum of at most M < n; all members of the team call Run, what it reads
//            synchronised.
// Rejects:   none; where numbers are none it ends early.
// Effects:   workspace.a is the result, exactly 0 and 1 at the bounds; .gradient is its, to rounding; .list is used.
//            Ends synchronised.
// Numerics:  f64; the second key is chosen in f32. Cost: n for each key with a > 0, about 3 n an exchange.
// Threads:   one team.
#ifndef LETHE_MEMORY_SVDD_SVDD_BLOCK_EXCHANGE_H_
#define LETHE_MEMORY_SVDD_SVDD_BLOCK_EXCHANGE_H_

#include <cmath>
#include <cstdint>

#include "memory/svdd/svdd_block_state.h"
#include "memory/svdd/svdd_team.h"

namespace lethe::svdd {

inline constexpr double kExchangeGap = 1e-3;
inline constexpr double kMissingMass = 1e-9;  // less is the rounding of a sum

template <typename Team>
class BlockExchange {
 public:
  LETHE_TEAM_CODE BlockExchange(Team* team, const BlockProblem& problem,
                                const BlockWorkspace& workspace)
      : team_(team),
        problem_(problem),
        work_(workspace),
        n_(problem.head->num_keys),
        ridge_(problem.head->ridge) {}

  LETHE_TEAM_CODE void Run() {
    const double missing = SumGradient();
    if (missing > kMissingMass) Fill(missing);
    Exchange();
  }

  LETHE_TEAM_CODE int num_exchanges() const { return num_exchanges_; }

 private:
  // gradient of workspace.a, and the mass that it lacks.
  LETHE_TEAM_CODE double SumGradient();
  LETHE_TEAM_CODE void Fill(double missing);
  LETHE_TEAM_CODE void Exchange();

  Team* team_;
  const BlockProblem& problem_;
  const BlockWorkspace& work_;
  int n_;
  double ridge_;
  int num_exchanges_ = 0;
};

template <typename Team>
LETHE_TEAM_CODE double BlockExchange<Team>::SumGradient() {
  const double* a = work_.a;
  const int count = team_->Compact(
      n_, [a](int i) { return a[i] > 0.0 ? i : -1; }, work_.list);
  TwoSums held;
  for (int i = team_->rank(); i < n_; i += team_->size()) {
    double sum = 0.0;
    LETHE_TEAM_UNROLL
    for (int t = 0; t < count; ++t) {
      const int32_t j = work_.list[t];
      sum = std::fma(a[j], problem_.Row(j)[i], sum);
    }
    work_.gradient[i] = 2.0 * std::fma(ridge_, a[i], sum);
    held.first += a[i];
  }
  team_->Sync();
  return problem_.head->box_mass - team_->Sum(held).first;
}

template <typename Team>
LETHE_TEAM_CODE void BlockExchange<Team>::Fill(double missing) {
  while (missing > 0.0) {
    Best best;
    for (int i = team_->rank(); i < n_; i += team_->size()) {
      if (work_.a[i] < 1.0) best = Lesser(best, {work_.gradient[i], i});
    }
    best = team_->Least(best);
    if (best.index < 0) return;
    const double room = 1.0 - work_.a[best.index];
    team_->Sync();
    const double taken = room < missing ? room : missing;
    const double* row = problem_.Row(best.index);
    for (int i = team_->rank(); i < n_; i += team_->size()) {
      double change = row[i];
      if (i == best.index) {
        change += ridge_;
        work_.a[i] = room <= missing ? 1.0 : work_.a[i] + taken;
      }
      work_.gradient[i] = std::fma(2.0 * taken, change, work_.gradient[i]);
    }
    missing -= taken;
    team_->Sync();
  }
}

template <typename Team>
LETHE_TEAM_CODE void BlockExchange<Team>::Exchange() {
  double* a = work_.a;
  double* gradient = work_.gradient;
  for (const int limit = problem_.exchanges_per_key * n_; num_exchanges_ < limit;
       ++num_exchanges_) {
    BestAndMost ends;
    for (int i = team_->rank(); i < n_; i += team_->size()) {
      if (a[i] < 1.0) ends.best = Lesser(ends.best, {gradient[i], i});
      if (a[i] > 0.0 && gradient[i] > ends.most) ends.most = gradient[i];
    }
    ends = team_->LeastAndMost(ends);
    const int32_t taker = ends.best.index;
    if (taker < 0 || !(ends.most - ends.best.value > kExchangeGap)) break;
    const double* taker_row = problem_.Row(taker);
    // The one whose exchange gains most. A single's rounding chooses as well.
    Best best;
    for (int i = team_->rank(); i < n_; i += team_->size()) {
      const double gap = gradient[i] - ends.best.value;
      if (!(a[i] > 0.0 && gap > 0.0) || i == taker) continue;
      const float curvature = static_cast<float>(1.0 + ridge_ - taker_row[i]);
      const float single = static_cast<float>(gap);
      best = Lesser(best, {-static_cast<double>(single * single / curvature), i});
    }
    best = team_->Least(best);
    const int32_t giver = best.index;
    if (giver < 0) break;
    const double gap = gradient[giver] - ends.best.value;
    const double room = 1.0 - a[taker];
    const double stock = a[giver];
    team_->Sync();
    const double wanted = 0.25 * gap / (1.0 + ridge_ - taker_row[giver]);
    double moved = wanted < room ? wanted : room;
    moved = moved < stock ? moved : stock;
    const double* giver_row = problem_.Row(giver);
    for (int i = team_->rank(); i < n_; i += team_->size()) {
      double change = taker_row[i] - giver_row[i];
      if (i == taker) {
        change += ridge_;
        a[i] = moved == room ? 1.0 : a[i] + moved;
      } else if (i == giver) {
        change -= ridge_;
        a[i] = moved == stock ? 0.0 : a[i] - moved;
      }
      gradient[i] = std::fma(2.0 * moved, change, gradient[i]);
    }
    team_->Sync();
  }
}

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_SVDD_BLOCK_EXCHANGE_H_
