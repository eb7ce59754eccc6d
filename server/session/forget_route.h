// ForgetRoute, PlanRoute: how a Forget reaches the state of the shorter history, and what it costs.
//
// Equation:  re-evaluation: from a complete snapshot the model evaluates the rest again. Replay, in a
//            model with a bank: BankEdit (server/model/bank_edit.h). Whichever takes fewer
//            multiply-adds (server/model/token_costs.h), to which the gates of the support-vector
//            heads add kBoundarySolveTokens tokens of the model at every boundary that is evaluated
//            again, kSetChangeTokens for the set change of a replay.
// Shapes:    removed: ascending distinct ranks before.
// Units:     ranks after; tokens.
// Requires:  removed not empty, ranks of state's history; the ladder holds a complete snapshot at
//            rank 0.
// Rejects:   none.
// Effects:   none.
// Numerics:  both ways end in the same bits.
// Threads:   compatible.
#ifndef LETHE_SERVER_SESSION_FORGET_ROUTE_H_
#define LETHE_SERVER_SESSION_FORGET_ROUTE_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"

#include "server/model/bank_edit.h"
#include "server/model/model_state.h"
#include "server/session/forget.h"
#include "server/session/snapshot_ladder.h"

namespace lethe {

// lethe-tiny at 1,024 to 8,192 tokens (tests/bench/RESULTS.md): a set change takes about as long as 50
// to 80 tokens of the model, a boundary as 20 and more, the first on a staged copy, whose caches are
// empty, as a set change.
inline constexpr int64_t kBoundarySolveTokens = 32;
inline constexpr int64_t kSetChangeTokens = 60;

struct ForgetRoute {
  ForgetWay way = ForgetWay::kReevaluation;
  ReevaluationPlan runs;  // of the model, or of the replay
  BankEditPlan edit;      // replay
  double cost = 0.0;      // in tokens of the model
};

// `wanted` unset: the cheaper way; re-evaluation, too, where a replay would have to hold more stored
// inputs again than the session may store. A replay is possible in a model with a bank whose history
// does not become empty; where it is wanted and not possible the way is re-evaluation.
ForgetRoute PlanRoute(const ModelState& state, const SnapshotLadder& ladder,
                      absl::Span<const int64_t> removed, std::optional<ForgetWay> wanted);

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_FORGET_ROUTE_H_
