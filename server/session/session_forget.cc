// Session: PlanForget, StageForget, Commit.
#include <algorithm>
#include <chrono>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/wiped.h"
#include "memory/memory.h"
#include "server/model/bank_edit.h"
#include "server/session/evaluation.h"
#include "server/session/forget_route.h"
#include "server/session/forget_selection.h"
#include "server/session/session.h"
#include "server/session/sv_heads_of.h"

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
const Inputs& StagedForget::inputs() const { return staging_->inputs; }
const ModelState& StagedForget::state() const { return *staging_->state; }
std::vector<SvHead> StagedForget::SvHeads() const { return SvHeadsOf(*staging_->state); }

namespace {

struct PlannedForget {
  ForgetPlan plan;
  ForgetRoute route;
};

// What both ways need; `inputs` and `ladder` are the staged ones.
struct Work {
  const ModelState& before;
  const ForgetPlan& plan;
  const ForgetRoute& route;
  const Inputs& inputs;
  const Checkpoint& checkpoint;
  SnapshotLadder* ladder;
  ForgetTimes* times;
};

// Adds the seconds of its life.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds) {}
  ~Stopwatch() { *seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double* seconds_;
  const Clock::time_point start_ = Clock::now();
};

// Evaluates the runs that only re-lay the ladder, on a copy of the old state. They come by falling
// rank, so that each Restore goes back in time, as memories require.
absl::Status ReLay(const Work& work) {
  if (work.route.runs.re_laid.empty()) return absl::OkStatus();
  const std::unique_ptr<ModelState> state = work.before.Clone();
  for (const EvaluationRun& run : work.route.runs.re_laid) {
    LETHE_RETURN_IF_ERROR(state->Restore(*work.ladder->NewestCompleteAtOrBefore(run.from)));
    LETHE_RETURN_IF_ERROR(EvaluateRange(work.inputs, run.from, run.to, work.route.runs.main.to,
                                        state.get(), work.ladder, work.checkpoint));
    work.ladder->Insert(state->Snapshot());
  }
  return absl::OkStatus();
}

// The evaluation that gives the new state. Its tokens from first_rank on have new ranks.
absl::StatusOr<std::unique_ptr<ModelState>> Reevaluate(const Work& work) {
  const Stopwatch stopwatch(&work.times->evaluate);
  LETHE_RETURN_IF_ERROR(ReLay(work));
  std::unique_ptr<ModelState> state = work.before.Clone();
  const EvaluationRun& run = work.route.runs.main;
  LETHE_RETURN_IF_ERROR(state->Restore(*work.ladder->NewestCompleteAtOrBefore(run.from)));
  int64_t from = run.from;
  if (FaultActive(Fault::kGridNotRealigned)) {
    LETHE_RETURN_IF_ERROR(
        EvaluateRange(work.inputs, from, work.plan.first_rank, run.to, state.get(), work.ladder));
    LETHE_RETURN_IF_ERROR(state->SkipSlots(static_cast<int64_t>(work.plan.removed_ranks.size())));
    from = work.plan.first_rank;
  }
  LETHE_RETURN_IF_ERROR(
      EvaluateRange(work.inputs, from, run.to, run.to, state.get(), work.ladder, work.checkpoint));
  return state;
}

// From the snapshot at `run.from` to `end`, leaving the ladder's snapshots on the way.
absl::Status ReplayRun(const Work& work, const EvaluationRun& run, int64_t end, BankEdit* edit) {
  const Stopwatch stopwatch(&work.times->replay);
  LETHE_RETURN_IF_ERROR(edit->Restore(*work.ladder->NewestAtOrBefore(run.from)));
  while (edit->rank() < end) {
    if (work.checkpoint) LETHE_RETURN_IF_ERROR(work.checkpoint());
    if (FaultActive(Fault::kGridNotRealigned) && edit->rank() == run.from) {
      LETHE_RETURN_IF_ERROR(edit->SkipSlots(static_cast<int64_t>(work.plan.removed_ranks.size())));
    }
    const int64_t boundary = edit->rank() - edit->rank() % kChunkTokens + kChunkTokens;
    LETHE_RETURN_IF_ERROR(edit->Replay(std::min(boundary, end)));
    if (edit->rank() == boundary && IsOnLadder(boundary, work.route.runs.main.to)) {
      work.ladder->Insert(edit->Snapshot());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ModelState>> Replay(const Work& work) {
  WipedVector<int32_t> history;
  for (int64_t rank = 0; rank < work.inputs.size(); ++rank) {
    history.push_back(work.inputs.at(rank).vocab_id);
  }
  BankEdit edit(*work.before.AsCpu(), work.route.edit, work.plan.removed_ranks, history);
  {
    const Stopwatch stopwatch(&work.times->evaluate);
    LETHE_RETURN_IF_ERROR(edit.Refresh(work.checkpoint));
  }
  for (const EvaluationRun& run : work.route.runs.re_laid) {
    LETHE_RETURN_IF_ERROR(ReplayRun(work, run, run.to, &edit));
    work.ladder->Insert(edit.Snapshot());
  }
  const int64_t head = work.route.runs.main.to;
  LETHE_RETURN_IF_ERROR(ReplayRun(work, work.route.runs.main, head - 1, &edit));
  const Stopwatch stopwatch(&work.times->solve);
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<ModelState> state, edit.Finish(work.checkpoint));
  if (head % kChunkTokens == 0) work.ladder->Insert(state->Snapshot());
  return state;
}

PlannedForget PlanOf(const Inputs& inputs, const ModelState& state, const SnapshotLadder& ladder,
                     ForgetSelection selection, std::optional<ForgetWay> way) {
  PlannedForget planned;
  ForgetPlan& plan = planned.plan;
  plan.selected_ids = inputs.IdsAt(selection.selected);
  plan.derived_ids = inputs.IdsAt(selection.derived);
  plan.num_tokens_before = inputs.size();
  plan.num_tokens_after = inputs.size() - static_cast<int64_t>(selection.removed.size());
  plan.first_rank = selection.removed.front();
  plan.removed_ranks = std::move(selection.removed);
  planned.route = PlanRoute(state, ladder, plan.removed_ranks, way);
  const ForgetRoute& route = planned.route;
  const bool replay = route.way == ForgetWay::kReplay;
  plan.way = route.way;
  plan.snapshot_rank = route.runs.main.from;
  plan.tokens_to_evaluate = replay ? 1 : route.runs.num_tokens;
  plan.tokens_to_replay = replay ? route.runs.num_tokens - 1 : 0;
  plan.local_tokens = route.edit.num_local;
  const std::vector<int64_t> ranks = ladder.ranks();
  plan.snapshots_destroyed = std::count_if(ranks.begin(), ranks.end(),
                                           [&](int64_t rank) { return rank > plan.first_rank; });
  return planned;
}

ForgetResult ResultOf(const PlannedForget& planned, DerivedPolicy policy) {
  const ForgetPlan& plan = planned.plan;
  ForgetResult result;
  result.forgotten_ids = plan.selected_ids;
  (policy == DerivedPolicy::kForgetDerived ? result.derived_removed_ids : result.derived_kept_ids) =
      plan.derived_ids;
  result.num_tokens_before = plan.num_tokens_before;
  result.num_tokens_after = plan.num_tokens_after;
  result.first_rank = plan.first_rank;
  result.snapshot_rank = plan.snapshot_rank;
  result.way = plan.way;
  result.tokens_evaluated = plan.tokens_to_evaluate;
  result.tokens_replayed = plan.tokens_to_replay;
  result.local_tokens = plan.local_tokens;
  result.dropped_inputs = planned.route.edit.num_dropped;
  result.snapshots_destroyed = plan.snapshots_destroyed;
  return result;
}

std::vector<int64_t> CountsOf(const Inputs& inputs, size_t vocab_size) {
  std::vector<int64_t> counts(vocab_size);
  for (int64_t rank = 0; rank < inputs.size(); ++rank) {
    ++counts[static_cast<size_t>(inputs.at(rank).vocab_id)];
  }
  return counts;
}

}  // namespace

absl::StatusOr<ForgetPlan> Session::PlanForget(const ForgetSelector& selector, DerivedPolicy policy,
                                               std::optional<ForgetWay> way) const {
  LETHE_RETURN_IF_ERROR(lost_);
  LETHE_ASSIGN_OR_RETURN(ForgetSelection selection, SelectForForget(inputs_, selector, policy));
  return PlanOf(inputs_, *state_, ladder_, std::move(selection), way).plan;
}

absl::StatusOr<std::unique_ptr<StagedForget>> Session::StageForget(
    const ForgetSelector& selector, DerivedPolicy policy, const Checkpoint& checkpoint,
    std::optional<ForgetWay> way) const {
  LETHE_RETURN_IF_ERROR(lost_);
  LETHE_ASSIGN_OR_RETURN(ForgetSelection selection, SelectForForget(inputs_, selector, policy));
  const PlannedForget planned = PlanOf(inputs_, *state_, ladder_, std::move(selection), way);
  const ForgetPlan& plan = planned.plan;
  auto staging = std::make_unique<StagedForget::Staging>();
  staging->session = this;
  staging->generation = generation_;
  staging->result = ResultOf(planned, policy);
  staging->inputs = Inputs(inputs_);
  staging->inputs.Remove(plan.removed_ranks);
  staging->ladder = ladder_;
  const bool keep_stale = FaultActive(Fault::kStaleSnapshotKept);
  staging->ladder.DropAfter(keep_stale ? plan.num_tokens_after : plan.first_rank);
  const bool replay = plan.way == ForgetWay::kReplay;
  const Work work = {*state_,
                     plan,
                     planned.route,
                     staging->inputs,
                     checkpoint,
                     &staging->ladder,
                     &staging->result.times};
  absl::StatusOr<std::unique_ptr<ModelState>> state = replay ? Replay(work) : Reevaluate(work);
  // Local layers warm up on inputs that they never had; evaluating may do without.
  if (replay && !way.has_value() && absl::IsInternal(state.status())) {
    return StageForget(selector, policy, checkpoint, ForgetWay::kReevaluation);
  }
  LETHE_ASSIGN_OR_RETURN(staging->state, std::move(state));
  staging->repetition_counts = FaultActive(Fault::kPenaltyCountsKept)
                                   ? repetition_counts_
                                   : CountsOf(staging->inputs, repetition_counts_.size());
  ForgetResult& result = staging->result;
  const Stopwatch stopwatch(&result.times.digest);
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

absl::StatusOr<std::unique_ptr<AnyStagedForget>> Session::Stage(const ForgetSelector& selector,
                                                                DerivedPolicy policy,
                                                                const Checkpoint& checkpoint,
                                                                std::optional<ForgetWay> way) {
  return StageForget(selector, policy, checkpoint, way);
}

absl::StatusOr<ForgetResult> Session::CommitStaged(std::unique_ptr<AnyStagedForget> staged) {
  auto* own = dynamic_cast<StagedForget*>(staged.get());
  LETHE_CHECK(own != nullptr);
  static_cast<void>(staged.release());
  return Commit(std::unique_ptr<StagedForget>(own));
}

absl::StatusOr<ForgetResult> Session::Forget(const ForgetSelector& selector, DerivedPolicy policy) {
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<StagedForget> staged, StageForget(selector, policy));
  return Commit(std::move(staged));
}

}  // namespace lethe
