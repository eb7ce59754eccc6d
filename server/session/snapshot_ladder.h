// SnapshotLadder, PlanReevaluation: which boundary states of a session are kept, and what a Forget
// evaluates from them.
//
// Equation:  for a head at rank T, a boundary p = 64 j is on the ladder when p is a multiple of
//            LadderSpacing(T - p), with LadderSpacing(x) = 64 * 2^floor(log2(x / 256)) for x >=
//            256, else 64. Spacing never exceeds a quarter of the distance (or 64), so that
//            distances from the head grow geometrically.
// Shapes:    O(log T) snapshots: about 4 for each doubling of T, and 8 near the head.
// Units:     ranks; tokens.
// Requires:  ranks multiples of 64, ascending on insertion (checked by LETHE_CHECK).  Rejects:
//            none.
// Effects:   dropping a snapshot destroys it (ModelSnapshot overwrites what it owns).
// Numerics:  exact. For a history of length T that grew by appends, the newest snapshot at or
//            before any r is at most (T - r)/2 + 64 below it.
// Threads:   compatible. Snapshots are immutable and may be shared by ladders (Session::Fork).
#ifndef LETHE_SERVER_SESSION_SNAPSHOT_LADDER_H_
#define LETHE_SERVER_SESSION_SNAPSHOT_LADDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/types/span.h"

#include "server/model/model_state.h"

namespace lethe {

int64_t LadderSpacing(int64_t distance);

// A run of evaluation: restore the snapshot at `from`, evaluate to `to`, keeping snapshots on the
// way.
struct EvaluationRun {
  int64_t from = 0;
  int64_t to = 0;
  bool operator==(const EvaluationRun& other) const { return from == other.from && to == other.to; }
};

// How to reach the state at rank num_after, in ranks after the Forget. The last run ends at
// num_after and gives the state; the others only re-lay the ladder for the new head below
// `first_rank`.
struct ReevaluationPlan {
  std::vector<EvaluationRun> runs;
  int64_t num_tokens = 0;  // over all runs
};

// `ranks`: of the snapshots held, ascending, 0 among them. first_rank: first removed rank;
// num_before, num_after: history length before and after. Within 2 (num_before - first_rank) + 128
// tokens wherever the snapshots allow it.
ReevaluationPlan PlanReevaluation(absl::Span<const int64_t> ranks, int64_t first_rank,
                                  int64_t num_before, int64_t num_after);

class SnapshotLadder {
 public:
  // Keeps `snapshot` (of snapshot->num_tokens() tokens) and drops what a head at that rank no
  // longer needs.
  void Insert(std::shared_ptr<const ModelSnapshot> snapshot);
  // Drops the snapshots behind `rank`; returns how many.
  int64_t DropAfter(int64_t rank);
  // The newest snapshot at or before `rank`; null when there is none.
  std::shared_ptr<const ModelSnapshot> NewestAtOrBefore(int64_t rank) const;

  std::vector<int64_t> ranks() const;
  size_t state_bytes() const;

 private:
  std::map<int64_t, std::shared_ptr<const ModelSnapshot>> snapshots_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_SNAPSHOT_LADDER_H_
