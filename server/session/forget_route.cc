#include "server/session/forget_route.h"

#include <algorithm>
#include <vector>

#include "memory/memory.h"
#include "server/model/bank_edit.h"
#include "server/model/token_costs.h"

namespace lethe {
namespace {

// Boundaries that the runs step over.
int64_t NumBoundaries(const ReevaluationPlan& runs) {
  const auto of_run = [](const EvaluationRun& run) {
    return run.to / kChunkTokens - run.from / kChunkTokens;
  };
  int64_t boundaries = of_run(runs.main);
  for (const EvaluationRun& run : runs.re_laid) boundaries += of_run(run);
  return boundaries;
}

ForgetRoute Reevaluation(const SnapshotLadder& ladder, bool has_gates, int64_t first_rank,
                         int64_t num_before, int64_t num_after) {
  ForgetRoute route;
  route.path = ForgetPath::kReevaluation;
  route.runs = PlanReevaluation(ladder.complete_ranks(), first_rank, num_before, num_after);
  route.cost = static_cast<double>(route.runs.num_tokens);
  if (has_gates)
    route.cost += static_cast<double>(NumBoundaries(route.runs) * kBoundarySolveTokens);
  return route;
}

ForgetRoute Replay(const ModelState& state, const SnapshotLadder& ladder,
                   absl::Span<const int64_t> removed, int64_t num_before, int64_t num_after) {
  ForgetRoute route;
  route.path = ForgetPath::kReplay;
  // The last token steps through the model, so a snapshot must lie before it.
  const int64_t first_rank = std::min(removed.front(), num_after - 1);
  route.runs = PlanReevaluation(ladder.ranks(), first_rank, num_before, num_after);
  const BankEditPlan edit = PlanBankEdit(state, removed, LowestRank(route.runs));
  route.num_local = edit.num_local;
  route.num_dropped = edit.num_dropped;
  const TokenCosts costs = TokenCostsOf(state.model().config());
  const double multiply_adds =
      static_cast<double>(route.num_local) * static_cast<double>(costs.local) +
      static_cast<double>(route.runs.num_tokens) * static_cast<double>(costs.replay);
  route.cost = multiply_adds / static_cast<double>(costs.model);
  if (!state.SvGroups().empty()) route.cost += kSetChangeTokens;
  return route;
}

}  // namespace

int64_t LowestRank(const ReevaluationPlan& runs) {
  int64_t lowest = runs.main.from;
  for (const EvaluationRun& run : runs.re_laid) lowest = std::min(lowest, run.from);
  return lowest;
}

ForgetRoute PlanRoute(const ModelState& state, const SnapshotLadder& ladder,
                      absl::Span<const int64_t> removed, std::optional<ForgetPath> wanted) {
  const int64_t num_before = state.num_tokens();
  const int64_t num_after = num_before - static_cast<int64_t>(removed.size());
  const ForgetRoute reevaluation =
      Reevaluation(ladder, !state.SvGroups().empty(), removed.front(), num_before, num_after);
  const bool possible = state.bank() != nullptr && num_after > 0;
  if (!possible || wanted == ForgetPath::kReevaluation) return reevaluation;
  const ForgetRoute replay = Replay(state, ladder, removed, num_before, num_after);
  if (wanted == ForgetPath::kReplay) return replay;
  return replay.cost < reevaluation.cost ? replay : reevaluation;
}

}  // namespace lethe
