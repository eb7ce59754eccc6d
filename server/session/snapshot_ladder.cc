#include "server/session/snapshot_ladder.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "memory/memory.h"

namespace lethe {
namespace {

// A gap below the head is re-laid when it exceeds this: half its distance. Fresh ladders have at
// most a third, so a head that recedes a little leaves them alone; the promise needs no more than
// the distance.
int64_t TolerableGap(int64_t distance) { return distance / 2 + kChunkTokens; }

// Spends `budget` tokens on the gaps that are too wide for the new head, nearest first.
std::vector<EvaluationRun> PlanReLaying(absl::Span<const int64_t> kept, int64_t num_after,
                                        int64_t budget) {
  std::vector<EvaluationRun> runs;
  for (size_t i = kept.size() - 1; i > 0 && budget >= kChunkTokens; --i) {
    const int64_t from = kept[i - 1];
    const int64_t distance = num_after - kept[i];
    if (kept[i] - from <= TolerableGap(distance)) continue;
    // Snapshots are wanted up to the last rung before kept[i]; a part of the way helps too.
    const int64_t wanted = kept[i] - LadderSpacing(distance) - from;
    const int64_t affordable = budget / kChunkTokens * kChunkTokens;
    const int64_t length = std::min(wanted, affordable);
    runs.push_back({from, from + length});
    budget -= length;
  }
  return runs;
}

}  // namespace

int64_t LadderSpacing(int64_t distance) {
  int64_t spacing = kChunkTokens;
  while (distance >= 8 * spacing) spacing *= 2;
  return spacing;
}

bool IsOnLadder(int64_t rank, int64_t head) { return rank % LadderSpacing(head - rank) == 0; }

ReevaluationPlan PlanReevaluation(absl::Span<const int64_t> ranks, int64_t first_rank,
                                  int64_t num_before, int64_t num_after) {
  LETHE_CHECK(!ranks.empty() && ranks[0] == 0);
  LETHE_CHECK(first_rank >= 0 && first_rank < num_before && num_after < num_before &&
              num_after >= first_rank);
  const auto end = std::upper_bound(ranks.begin(), ranks.end(), first_rank);
  const auto num_kept = static_cast<size_t>(end - ranks.begin());
  const absl::Span<const int64_t> kept = ranks.first(num_kept);
  ReevaluationPlan plan;
  plan.main = {kept.back(), num_after};
  plan.num_tokens = num_after - kept.back();
  const int64_t budget = 2 * (num_before - first_rank) + 2 * kChunkTokens - plan.num_tokens;
  plan.re_laid = PlanReLaying(kept, num_after, budget);
  for (const EvaluationRun& run : plan.re_laid) plan.num_tokens += run.to - run.from;
  return plan;
}

void SnapshotLadder::Insert(std::shared_ptr<const ModelSnapshot> snapshot) {
  LETHE_CHECK(snapshot->num_tokens() % kChunkTokens == 0);
  std::shared_ptr<const ModelSnapshot>& held = snapshots_[snapshot->num_tokens()];
  if (held == nullptr || (!held->complete() && snapshot->complete())) held = std::move(snapshot);
}

void SnapshotLadder::Prune(int64_t head) {
  for (auto it = snapshots_.begin(); it != snapshots_.end();) {
    it = IsOnLadder(it->first, head) ? std::next(it) : snapshots_.erase(it);
  }
}

int64_t SnapshotLadder::DropAfter(int64_t rank) {
  const auto first = snapshots_.upper_bound(rank);
  const auto num_dropped = std::distance(first, snapshots_.end());
  snapshots_.erase(first, snapshots_.end());
  return num_dropped;
}

std::shared_ptr<const ModelSnapshot> SnapshotLadder::NewestAtOrBefore(int64_t rank) const {
  const auto after = snapshots_.upper_bound(rank);
  return after == snapshots_.begin() ? nullptr : std::prev(after)->second;
}

std::shared_ptr<const ModelSnapshot> SnapshotLadder::NewestCompleteAtOrBefore(int64_t rank) const {
  for (auto it = snapshots_.upper_bound(rank); it != snapshots_.begin();) {
    --it;
    if (it->second->complete()) return it->second;
  }
  return nullptr;
}

std::vector<int64_t> SnapshotLadder::complete_ranks() const {
  std::vector<int64_t> ranks;
  for (const auto& [rank, snapshot] : snapshots_) {
    if (snapshot->complete()) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int64_t> SnapshotLadder::ranks() const {
  std::vector<int64_t> ranks;
  for (const auto& [rank, snapshot] : snapshots_) ranks.push_back(rank);
  return ranks;
}

size_t SnapshotLadder::state_bytes() const {
  size_t bytes = 0;
  for (const auto& [rank, snapshot] : snapshots_) bytes += snapshot->state_bytes();
  return bytes;
}

}  // namespace lethe
