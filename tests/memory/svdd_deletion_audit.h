// DeletionAudit: keys deleted from a list on every path that can forget one, each result compared with
// a solve from scratch, bit for bit, and with a 113-bit active set.
//
// The paths: IncrementalSolver::Remove; CanonicalSolver::SetEdited, from edit to edit; Truncate to a
// rank at or below the removed one, then Append of the rest. Compared: the solution's bits and the
// SHA-256 digest that the state of such a head has.
// Threads: none.
#ifndef LETHE_TESTS_MEMORY_SVDD_DELETION_AUDIT_H_
#define LETHE_TESTS_MEMORY_SVDD_DELETION_AUDIT_H_

#include <cstdint>
#include <random>
#include <vector>

#include "memory/svdd/problem.h"

namespace lethe::svdd {

enum class DeletionPlan {
  kDelete,       // `count` deletions
  kAroundMass,   // `count` deletions, n staying within 3 of M
  kDownToOne,    // until one key is left
  kAllAndAgain,  // until none is left, refilled in another order, and once more
};

struct DeletionCase {
  Params params;
  std::vector<double> keys;
  DeletionPlan plan = DeletionPlan::kDelete;
  int64_t count = 1;
  int64_t first_rank = -1;  // the one that goes first, or any
};

struct DeletionTally {
  int64_t deletions = 0;
  int64_t additions = 0;
  int64_t identical = 0;  // of both: all paths have the bits and the digest of a solve from scratch
  int64_t compared = 0;   // with the oracle, where its own margins show its partition
  int64_t matched = 0;    // of these
  int64_t ambiguous = 0;  // no partition could be proved; compared only if the margin is >= 2t
  int64_t too_close = 0;  // the oracle cannot tell either: a margin below its own resolution
  int64_t fallbacks = 0;  // of all three paths
  int64_t solves = 0;
  std::vector<int64_t> margin_keys;      // |S| after each deletion
  std::vector<int64_t> margin_distinct;  // the same without copies

  // One line on standard output.
  void Print(const char* kind) const;
};

// Fails the running test (ASSERT) at the first result that differs.
void AuditDeletions(const DeletionCase& deletions, bool with_oracle, std::mt19937_64* random,
                    DeletionTally* tally);

// True when LETHE_TEST_LONG asks for everything.
bool WantsAll();

}  // namespace lethe::svdd

#endif  // LETHE_TESTS_MEMORY_SVDD_DELETION_AUDIT_H_
