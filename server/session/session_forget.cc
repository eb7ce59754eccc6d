// Session: PlanForget, StageForget, Commit.
#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "server/session/evaluation.h"
#include "server/session/forget_selection.h"
#include "server/session/session.h"

namespace lethe {

struct StagedForget::Staging {
  const Session* session = nullptr;
  uint64_t generation = 0;
  ForgetResult result;
  std::unique_ptr<ModelState> state;
  SnapshotLadder ladder;
  Inputs inputs;
  std::vector<int64_t> repetition_counts;
};

StagedForget::StagedForget(std::unique_ptr<Staging> staging) : staging_(std::move(staging)) {}
StagedForget::~StagedForget() = default;
const ForgetResult& StagedForget::result() const { return staging_->result; }
const ModelState& StagedForget::state() const { return *staging_->state; }

namespace {

std::vector<uint64_t> IdsOf(const Inputs& inputs, const std::vector<int64_t>& ranks) {
  std::vector<uint64_t> token_ids;
  token_ids.reserve(ranks.size());
  for (const int64_t rank : ranks) token_ids.push_back(inputs.at(rank).token_id);
  return token_ids;
}

// Evaluates the runs that only re-lay the ladder, on a copy of the old state. They come by falling
// rank, so that each Restore goes back in time, as memories require.
absl::Status ReLay(const ReevaluationPlan& plan, const ModelState& old_state, const Inputs& inputs,
                   int64_t num_after, const Checkpoint& checkpoint, SnapshotLadder* ladder) {
  if (plan.re_laid.empty()) return absl::OkStatus();
  const std::unique_ptr<ModelState> state = old_state.Clone();
  for (const EvaluationRun& run : plan.re_laid) {
    LETHE_RETURN_IF_ERROR(state->Restore(*ladder->NewestAtOrBefore(run.from)));
    LETHE_RETURN_IF_ERROR(
        EvaluateRange(inputs, run.from, run.to, num_after, state.get(), ladder, checkpoint));
    ladder->Insert(state->Snapshot());
  }
  return absl::OkStatus();
}

// The evaluation that gives the new state. Its tokens from first_rank on have new ranks.
absl::Status Reevaluate(const EvaluationRun& run, const ForgetPlan& plan, const Inputs& inputs,
                        const Checkpoint& checkpoint, ModelState* state, SnapshotLadder* ladder) {
  LETHE_RETURN_IF_ERROR(state->Restore(*ladder->NewestAtOrBefore(run.from)));
  int64_t from = run.from;
  if (FaultActive(Fault::kGridNotRealigned)) {
    LETHE_RETURN_IF_ERROR(EvaluateRange(inputs, from, plan.first_rank, run.to, state, ladder));
    LETHE_RETURN_IF_ERROR(state->SkipSlots(static_cast<int64_t>(plan.removed_ranks.size())));
    from = plan.first_rank;
  }
  return EvaluateRange(inputs, from, run.to, run.to, state, ladder, checkpoint);
}

}  // namespace

absl::StatusOr<ForgetPlan> Session::PlanForget(const ForgetSelector& selector,
                                               DerivedPolicy policy) const {
  LETHE_ASSIGN_OR_RETURN(ForgetSelection selection, SelectForForget(inputs_, selector, policy));
  ForgetPlan plan;
  plan.selected_ids = IdsOf(inputs_, selection.selected);
  plan.derived_ids = IdsOf(inputs_, selection.derived);
  plan.num_tokens_before = num_tokens();
  plan.num_tokens_after = num_tokens() - static_cast<int64_t>(selection.removed.size());
  plan.first_rank = selection.removed.front();
  plan.removed_ranks = std::move(selection.removed);
  const std::vector<int64_t> ranks = ladder_.ranks();
  const ReevaluationPlan reevaluation =
      PlanReevaluation(ranks, plan.first_rank, plan.num_tokens_before, plan.num_tokens_after);
  plan.snapshot_rank = reevaluation.main.from;
  plan.tokens_to_evaluate = reevaluation.num_tokens;
  plan.snapshots_destroyed = std::count_if(ranks.begin(), ranks.end(),
                                           [&](int64_t rank) { return rank > plan.first_rank; });
  return plan;
}

absl::StatusOr<std::unique_ptr<StagedForget>> Session::StageForget(
    const ForgetSelector& selector, DerivedPolicy policy, const Checkpoint& checkpoint) const {
  LETHE_ASSIGN_OR_RETURN(ForgetPlan plan, PlanForget(selector, policy));
  const ReevaluationPlan reevaluation = PlanReevaluation(
      ladder_.ranks(), plan.first_rank, plan.num_tokens_before, plan.num_tokens_after);
  auto staging = std::make_unique<StagedForget::Staging>();
  staging->session = this;
  staging->generation = generation_;
  staging->inputs = Inputs(inputs_);
  staging->inputs.Remove(plan.removed_ranks);
  staging->ladder = ladder_;
  const bool keep_stale = FaultActive(Fault::kStaleSnapshotKept);
  staging->ladder.DropAfter(keep_stale ? plan.num_tokens_after : plan.first_rank);
  staging->state = state_->Clone();
  LETHE_RETURN_IF_ERROR(ReLay(reevaluation, *state_, staging->inputs, plan.num_tokens_after,
                              checkpoint, &staging->ladder));
  LETHE_RETURN_IF_ERROR(Reevaluate(reevaluation.main, plan, staging->inputs, checkpoint,
                                   staging->state.get(), &staging->ladder));
  staging->repetition_counts = repetition_counts_;
  if (!FaultActive(Fault::kPenaltyCountsKept)) {
    std::fill(staging->repetition_counts.begin(), staging->repetition_counts.end(), 0);
    for (int64_t rank = 0; rank < staging->inputs.size(); ++rank) {
      ++staging->repetition_counts[static_cast<size_t>(staging->inputs.at(rank).vocab_id)];
    }
  }
  ForgetResult& result = staging->result;
  result.forgotten_ids = std::move(plan.selected_ids);
  (policy == DerivedPolicy::kForgetDerived ? result.derived_removed_ids : result.derived_kept_ids) =
      std::move(plan.derived_ids);
  result.num_tokens_before = plan.num_tokens_before;
  result.num_tokens_after = plan.num_tokens_after;
  result.first_rank = plan.first_rank;
  result.snapshot_rank = plan.snapshot_rank;
  result.tokens_evaluated = plan.tokens_to_evaluate;
  result.snapshots_destroyed = plan.snapshots_destroyed;
  result.digest_before = Digest();
  result.digest_after = DigestPartsOf(*staging->state, staging->repetition_counts).Digest();
  result.gaps = staging->inputs.Gaps(shared_ids_end_ != 0 ? shared_ids_end_ : next_token_id_);
  return std::unique_ptr<StagedForget>(new StagedForget(std::move(staging)));
}

absl::StatusOr<ForgetResult> Session::Commit(std::unique_ptr<StagedForget> staged) {
  StagedForget::Staging& staging = *staged->staging_;
  LETHE_CHECK(staging.session == this);
  if (staging.generation != generation_) {
    return absl::FailedPreconditionError("the session has changed since the forget was staged");
  }
  state_ = std::move(staging.state);
  ladder_ = std::move(staging.ladder);
  inputs_ = std::move(staging.inputs);
  repetition_counts_ = std::move(staging.repetition_counts);
  tokens_reevaluated_ += staging.result.tokens_evaluated;
  ++generation_;
  InvalidateLogits();
  return std::move(staging.result);
}

absl::StatusOr<ForgetResult> Session::Forget(const ForgetSelector& selector, DerivedPolicy policy) {
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<StagedForget> staged, StageForget(selector, policy));
  return Commit(std::move(staged));
}

}  // namespace lethe
