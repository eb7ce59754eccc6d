#include "server/model/bank_edit.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"
#include "server/model/workspace.h"

namespace lethe {
namespace {

// The rank from which each layer up to the bank must step, from empty, so that what the bank takes
// from `first` on is right: a layer's outputs are right once it has stepped over its reach.
std::vector<int64_t> StartsOf(const ModelConfig& config, int64_t first) {
  const size_t bank = *config.bank;
  std::vector<int64_t> starts(bank + 1);
  for (size_t i = bank + 1; i-- > 0;) {
    first = std::max<int64_t>(0, first - LocalReach(config.layers[i]));
    starts[i] = first;
  }
  return starts;
}

// Tokens that the layers below the bank step before `first`, on average over these layers.
int64_t WarmUpTokens(const ModelConfig& config, int64_t first) {
  const std::vector<int64_t> starts = StartsOf(config, first);
  const auto num_layers = static_cast<int64_t>(starts.size()) - 1;
  int64_t tokens = 0;
  for (int64_t i = 0; i < num_layers; ++i) tokens += first - starts[static_cast<size_t>(i)];
  return num_layers == 0 ? 0 : (tokens + num_layers - 1) / num_layers;
}

// Joins runs that overlap or lie at most `gap` apart.
std::vector<RankRun> Joined(std::vector<RankRun> runs, int64_t gap) {
  std::sort(runs.begin(), runs.end(),
            [](const RankRun& a, const RankRun& b) { return a.first < b.first; });
  std::vector<RankRun> joined;
  for (const RankRun& run : runs) {
    if (!joined.empty() && run.first - joined.back().end <= gap) {
      joined.back().end = std::max(joined.back().end, run.end);
    } else {
      joined.push_back(run);
    }
  }
  return joined;
}

// The ranks behind each gap whose receptive field the removal touched.
std::vector<RankRun> ChangedRuns(absl::Span<const int64_t> removed, int64_t receptive_field,
                                 int64_t num_after) {
  std::vector<RankRun> runs;
  for (size_t i = 0; i < removed.size(); ++i) {
    const int64_t gap = removed[i] - static_cast<int64_t>(i);
    const int64_t end = std::min(gap + receptive_field - 1, num_after);
    if (end > gap) runs.push_back({gap, end});
  }
  return Joined(std::move(runs), 0);
}

bool Contains(const std::vector<RankRun>& runs, int64_t rank) {
  const auto after = std::upper_bound(runs.begin(), runs.end(), rank,
                                      [](int64_t r, const RankRun& run) { return r < run.first; });
  return after != runs.begin() && rank < std::prev(after)->end;
}

const MemoryLayerState& BankOf(const CpuModelState& state) {
  const MemoryLayerState* bank = state.bank();
  LETHE_CHECK(bank != nullptr);
  return *bank;
}

}  // namespace

BankEditPlan PlanBankEdit(const CpuModelState& before, absl::Span<const int64_t> removed,
                          int64_t replay_from) {
  const ModelConfig& config = before.model().config();
  const MemoryLayerState& bank = BankOf(before);
  const int64_t num_before = before.num_tokens();
  const int64_t num_after = num_before - static_cast<int64_t>(removed.size());
  BankEditPlan plan;
  if (!FaultActive(Fault::kChangedFeaturesKept)) {
    plan.changed = ChangedRuns(removed, config.local_receptive_field, num_after);
  }
  plan.evaluated = plan.changed;
  size_t next = 0;
  for (int64_t old_rank = 0; old_rank < num_before; ++old_rank) {
    if (next < removed.size() && removed[next] == old_rank) {
      ++next;
      continue;
    }
    const int64_t rank = old_rank - static_cast<int64_t>(next);
    const bool needed = bank.stored().columns() > 0 && rank >= replay_from && rank + 1 < num_after;
    if (!needed || bank.stored().row(old_rank) != nullptr || Contains(plan.changed, rank)) continue;
    ++plan.num_dropped;
    plan.evaluated.push_back({rank, rank + 1});
  }
  // The tails and the last token's projections hold unless they changed or another token is last.
  const bool same_last = removed.empty() || removed.back() != num_before - 1;
  if (num_after > 0 && !(same_last && !bank.last().x.empty())) {
    plan.evaluated.push_back({num_after - 1, num_after});
  }
  plan.evaluated = Joined(std::move(plan.evaluated), WarmUpTokens(config, num_after));
  for (const RankRun& run : plan.evaluated) {
    plan.num_local += run.end - run.first + WarmUpTokens(config, run.first);
  }
  return plan;
}

BankEdit::BankEdit(const CpuModelState& before, const BankEditPlan& plan,
                   absl::Span<const int64_t> removed, absl::Span<const int32_t> history)
    : before_(before),
      removed_(removed),
      history_(history),
      plan_(plan),
      stored_(BankOf(before).stored()),
      row_maker_(stored_.columns()),
      workspace_(std::make_unique<Workspace>(Workspace::ColumnsOf(before.model().config()))) {
  LETHE_CHECK(!history.empty() &&
              static_cast<int64_t>(history.size() + removed.size()) == before.num_tokens());
  stored_.Remove(removed);
  for (const std::unique_ptr<MemoryGroup>& group : bank_before().groups()) {
    streaming_.push_back(group->sv_memory() != nullptr ? nullptr : group->Clone());
  }
}

BankEdit::~BankEdit() = default;

const MemoryLayerState& BankEdit::bank_before() const { return BankOf(before_); }

bool BankEdit::IsChanged(int64_t rank) const { return Contains(plan_.changed, rank); }

int64_t BankEdit::RankBefore(int64_t rank) const {
  // The first i with removed[i] - i > rank: that many ranks went before it.
  size_t low = 0;
  size_t high = removed_.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (removed_[middle] - static_cast<int64_t>(middle) > rank) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return rank + static_cast<int64_t>(low);
}

absl::Status BankEdit::Refresh(const Checkpoint& checkpoint) {
  for (const RankRun& run : plan_.evaluated) {
    LETHE_RETURN_IF_ERROR(EvaluateStretch(run, checkpoint));
  }
  refreshed_ = true;
  return absl::OkStatus();
}

absl::Status BankEdit::EvaluateStretch(const RankRun& run, const Checkpoint& checkpoint) {
  const ModelConfig& config = before_.model().config();
  const int64_t width = config.width;
  const std::vector<int64_t> starts = StartsOf(config, run.first);
  const int64_t bank_start = starts.back();
  std::vector<std::unique_ptr<LayerState>> layers;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    LETHE_ASSIGN_OR_RETURN(std::unique_ptr<LayerState> layer, before_.MakeLayer(i));
    layers.push_back(std::move(layer));
  }
  BankEnd end = bank_before().EmptyEnd();
  const bool is_last = run.end == num_after();
  const auto reads = is_last ? MemoryGroup::Reads::kWanted : MemoryGroup::Reads::kNotWanted;
  for (int64_t block = starts.front(); block < run.end; block += kBlockTokens) {
    if (checkpoint) LETHE_RETURN_IF_ERROR(checkpoint());
    const int64_t count = std::min(kBlockTokens, run.end - block);
    const absl::Span<float> x = workspace_->x(count * width);
    before_.Embed(history_.subspan(static_cast<size_t>(block), static_cast<size_t>(count)), x);
    // The rows of the block from `rank` on.
    const auto from = [&](int64_t rank) {
      const int64_t skipped = std::clamp<int64_t>(rank - block, 0, count);
      return x.subspan(static_cast<size_t>(skipped * width));
    };
    for (size_t i = 0; i < layers.size(); ++i) {
      const absl::Span<float> rows = from(starts[i]);
      if (rows.empty()) continue;
      LETHE_RETURN_IF_ERROR(
          layers[i]->Forward(static_cast<int64_t>(rows.size()) / width, rows, workspace_.get()));
    }
    const absl::Span<float> rows = from(bank_start);
    if (rows.empty()) continue;
    BankInputs inputs;
    LETHE_RETURN_IF_ERROR(bank_before().Collect(rows, static_cast<int64_t>(rows.size()) / width,
                                                reads, &end, &row_maker_, &inputs,
                                                workspace_.get()));
    Take(std::max(block, bank_start), run.first, inputs);
  }
  if (is_last) {
    local_layers_ = std::move(layers);
    end_ = std::move(end);
  }
  return absl::OkStatus();
}

// `first`: the rank of inputs' first token; those below `wanted` only warmed the convolutions up.
void BankEdit::Take(int64_t first, int64_t wanted, const BankInputs& inputs) {
  const size_t num_groups = bank_before().groups().size();
  replaced_inputs_.keys.resize(num_groups);
  replaced_inputs_.values.resize(num_groups);
  const auto append_token = [](const WipedFloats& from, size_t token, size_t num_tokens,
                               WipedFloats* to) {
    const auto columns = static_cast<std::ptrdiff_t>(from.size() / num_tokens);
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(token) * columns;
    to->insert(to->end(), begin, begin + columns);
  };
  for (size_t t = 0; t < inputs.rows.size(); ++t) {
    const int64_t rank = first + static_cast<int64_t>(t);
    if (rank < wanted) continue;
    stored_.Set(rank, inputs.rows[t]);
    if (!IsChanged(rank) || rank + 1 == num_after()) continue;
    replaced_.push_back(RankBefore(rank));
    for (size_t g = 0; g < num_groups; ++g) {
      if (inputs.keys[g].empty()) continue;
      append_token(inputs.keys[g], t, inputs.rows.size(), &replaced_inputs_.keys[g]);
      append_token(inputs.values[g], t, inputs.rows.size(), &replaced_inputs_.values[g]);
    }
  }
}

absl::Status BankEdit::Restore(const ModelSnapshot& any) {
  const auto& snapshot = dynamic_cast<const CpuModelSnapshot&>(any);
  LETHE_CHECK(snapshot.num_tokens() < num_after());
  const size_t bank = *before_.model().config().bank;
  LETHE_RETURN_IF_ERROR(MemoryLayerState::RestoreForReplay(*snapshot.layers_[bank], &streaming_));
  rank_ = snapshot.num_tokens();
  return absl::OkStatus();
}

absl::Status BankEdit::Replay(int64_t end) {
  LETHE_CHECK(end > rank_ && end < num_after() && end - rank_ <= kBlockTokens);
  int64_t first_stored = 0;
  std::vector<const float*> rows(static_cast<size_t>(end - rank_));
  for (const std::unique_ptr<MemoryGroup>& group : streaming_) {
    if (group == nullptr) continue;
    for (int64_t rank = rank_; rank < end; ++rank) {
      const float* row = stored_.row(rank);
      LETHE_CHECK(row != nullptr);
      rows[static_cast<size_t>(rank - rank_)] = row + first_stored;
    }
    LETHE_RETURN_IF_ERROR(group->Replay(rows, workspace_.get()));
    first_stored += group->stored_columns();
  }
  rank_ = end;
  return absl::OkStatus();
}

absl::Status BankEdit::SkipSlots(int64_t count) {
  for (const std::unique_ptr<MemoryGroup>& group : streaming_) {
    if (group != nullptr) LETHE_RETURN_IF_ERROR(group->SkipSlots(count));
  }
  return absl::OkStatus();
}

std::shared_ptr<const ModelSnapshot> BankEdit::Snapshot() const {
  std::shared_ptr<CpuModelSnapshot> snapshot(new CpuModelSnapshot);
  snapshot->num_tokens_ = rank_;
  snapshot->complete_ = false;
  snapshot->layers_.resize(before_.layers_.size());
  snapshot->layers_[*before_.model().config().bank] = MemoryLayerState::ReplaySnapshot(streaming_);
  return snapshot;
}

absl::StatusOr<std::unique_ptr<MemoryGroup>> BankEdit::EditSv(size_t group) {
  svdd::SvEdit edit;
  edit.removed.assign(removed_.begin(), removed_.end());
  // The last token steps once more.
  const int64_t last = RankBefore(num_after() - 1);
  edit.removed.insert(std::upper_bound(edit.removed.begin(), edit.removed.end(), last), last);
  edit.replaced = replaced_;
  if (!replaced_.empty()) {
    edit.keys = replaced_inputs_.keys[group];
    edit.values = replaced_inputs_.values[group];
  }
  return bank_before().groups()[group]->Edited(edit);
}

absl::StatusOr<MemoryLayerState::Groups> BankEdit::FinishGroups(const Checkpoint& checkpoint) {
  MemoryLayerState::Groups groups = std::move(streaming_);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g] == nullptr) {
      if (checkpoint) LETHE_RETURN_IF_ERROR(checkpoint());
      LETHE_ASSIGN_OR_RETURN(groups[g], EditSv(g));
    }
    // A streaming group is a clone of the group before, tails included.
    if (!end_.tails.empty() && !FaultActive(Fault::kOldConvolutionTailKept)) {
      *groups[g]->mutable_tails() = std::move(end_.tails[g]);
    }
  }
  return groups;
}

absl::StatusOr<std::unique_ptr<ModelState>> BankEdit::Finish(const Checkpoint& checkpoint) {
  LETHE_CHECK(refreshed_ && rank_ + 1 == num_after());
  const size_t bank = *before_.model().config().bank;
  const bool new_end = !end_.tails.empty();
  BankToken last = bank_before().last();
  if (new_end) last = std::move(end_.last);
  LETHE_ASSIGN_OR_RETURN(MemoryLayerState::Groups groups, FinishGroups(checkpoint));
  std::unique_ptr<CpuModelState> state = before_.EmptyCopy();
  for (size_t i = 0; i < before_.layers_.size(); ++i) {
    if (i == bank) {
      state->layers_.push_back(nullptr);  // below
    } else {
      state->layers_.push_back(i < bank && new_end ? std::move(local_layers_[i])
                                                   : before_.layers_[i]->Clone());
    }
  }
  stored_.Truncate(num_after() - 1);
  stored_.DropBeyondLimit();
  state->layers_[bank] = bank_before().With(std::move(groups), std::move(stored_), std::move(last));
  LETHE_RETURN_IF_ERROR(state->RepeatLast(num_after()));
  return state;
}

}  // namespace lethe
