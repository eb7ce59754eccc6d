#include "server/session/forget_route.h"

#include <algorithm>
#include <vector>

#include "memory/memory.h"
#include "server/model/cpu_model_state.h"
#include "server/model/memory_layer.h"
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

// The lowest rank that any of the runs starts from.
int64_t LowestRank(const ReevaluationPlan& runs) {
  int64_t lowest = runs.main.from;
  for (const EvaluationRun& run : runs.re_laid) lowest = std::min(lowest, run.from);
  return lowest;
}

ForgetRoute Reevaluation(const SnapshotLadder& ladder, bool has_gates, int64_t first_rank,
                         int64_t num_before, int64_t num_after) {
  ForgetRoute route;
  route.way = ForgetWay::kReevaluation;
  route.runs = PlanReevaluation(ladder.complete_ranks(), first_rank, num_before, num_after);
  route.cost = static_cast<double>(route.runs.num_tokens);
  if (has_gates)
    route.cost += static_cast<double>(NumBoundaries(route.runs) * kBoundarySolveTokens);
  return route;
}

ForgetRoute Replay(const CpuModelState& state, const SnapshotLadder& ladder,
                   absl::Span<const int64_t> removed, int64_t num_before, int64_t num_after) {
  ForgetRoute route;
  route.way = ForgetWay::kReplay;
  // The last token steps through the model, so a snapshot must lie before it.
  const int64_t first_rank = std::min(removed.front(), num_after - 1);
  route.runs = PlanReevaluation(ladder.ranks(), first_rank, num_before, num_after);
  route.edit = PlanBankEdit(state, removed, LowestRank(route.runs));
  const TokenCosts costs = TokenCostsOf(state.model().config());
  const double multiply_adds =
      static_cast<double>(route.edit.num_local) * static_cast<double>(costs.local) +
      static_cast<double>(route.runs.num_tokens) * static_cast<double>(costs.replay);
  route.cost = multiply_adds / static_cast<double>(costs.model);
  if (!state.SvGroups().empty()) route.cost += kSetChangeTokens;
  return route;
}

}  // namespace

ForgetRoute PlanRoute(const ModelState& state, const SnapshotLadder& ladder,
                      absl::Span<const int64_t> removed, std::optional<ForgetWay> wanted) {
  const int64_t num_before = state.num_tokens();
  const int64_t num_after = num_before - static_cast<int64_t>(removed.size());
  ForgetRoute reevaluation =
      Reevaluation(ladder, !state.SvGroups().empty(), removed.front(), num_before, num_after);
  const CpuModelState* cpu = state.AsCpu();
  const bool possible = cpu != nullptr && cpu->bank() != nullptr && num_after > 0;
  if (!possible || wanted == ForgetWay::kReevaluation) return reevaluation;
  ForgetRoute replay = Replay(*cpu, ladder, removed, num_before, num_after);
  if (wanted == ForgetWay::kReplay) return replay;
  const bool fits = replay.edit.num_dropped <= cpu->bank()->stored().max_rows();
  return fits && replay.cost < reevaluation.cost ? replay : reevaluation;
}

}  // namespace lethe
