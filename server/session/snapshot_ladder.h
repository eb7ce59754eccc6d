// SnapshotLadder, PlanReevaluation: which boundary states of a session are kept, and what a Forget
// evaluates from them.
//
// Equation:  for a head at rank T, the boundary p = 64 j is on the ladder when p is a multiple of
//            LadderSpacing(T - p), where LadderSpacing(x) = 64 * 2^floor(log2(x / 256)) for x >=
//            256, else 64: at most a quarter of the distance (or 64). What is on the ladder of T
//            was on the ladder of every smaller head behind p, so a growing history only ever drops
//            snapshots.
// Shapes:    O(log T) snapshots: 4 to 8 for each doubling of T.
// Units:     ranks; tokens.
// Requires:  ranks ascending, multiples of 64, 0 among them; first_rank < num_before, num_after <
//            num_before (checked by LETHE_CHECK).
// Rejects:   none.
// Effects:   dropping a snapshot destroys it (ModelSnapshot overwrites what it owns).
// Numerics:  exact. On a history that grew by appends a Forget at rank r evaluates at most 2 (T -
//            r) + 128 tokens, re-laying included. After removals the same holds again as far as the
//            budget of those Forgets reached: each spends what it has left on the gaps nearest to
//            its head.
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

// True when a session whose history ends at `head` keeps the snapshot at `rank`.
bool IsOnLadder(int64_t rank, int64_t head);

// A run of evaluation: restore the snapshot at `from`, evaluate to `to`.
struct EvaluationRun {
  int64_t from = 0;
  int64_t to = 0;
  bool operator==(const EvaluationRun& other) const = default;
};

// How to reach the state at rank num_after, in ranks after the Forget.
struct ReevaluationPlan {
  EvaluationRun main;                  // ends at num_after
  std::vector<EvaluationRun> re_laid;  // below main.from, by falling rank: only for their snapshots
  int64_t num_tokens = 0;              // over all runs
};

// `ranks`: of the snapshots held; first_rank: first removed rank; num_before, num_after: length of
// the history before and after.
ReevaluationPlan PlanReevaluation(absl::Span<const int64_t> ranks, int64_t first_rank,
                                  int64_t num_before, int64_t num_after);

class SnapshotLadder {
 public:
  // Keeps `snapshot` at its num_tokens(); one that is there already stays, unless the new one is the
  // first complete one.
  void Insert(std::shared_ptr<const ModelSnapshot> snapshot);
  // Drops what a head at that rank does not keep.
  void Prune(int64_t head);
  // Drops the snapshots behind `rank`; returns how many.
  int64_t DropAfter(int64_t rank);
  // The newest snapshot at or before `rank`; null when there is none.
  std::shared_ptr<const ModelSnapshot> NewestAtOrBefore(int64_t rank) const;

  // The same of a snapshot that the model itself can go on from.
  std::shared_ptr<const ModelSnapshot> NewestCompleteAtOrBefore(int64_t rank) const;

  std::vector<int64_t> ranks() const;
  std::vector<int64_t> complete_ranks() const;
  size_t state_bytes() const;

 private:
  std::map<int64_t, std::shared_ptr<const ModelSnapshot>> snapshots_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_SNAPSHOT_LADDER_H_
