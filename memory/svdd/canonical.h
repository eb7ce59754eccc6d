// CanonicalSolver, SolveCanonical: the support-vector solution whose bits depend on the ordered key
// list and the parameters alone.
//
// Equation:  problem.h, with the Gram doubles of kernels/gram read as exact numbers. Keys equal bit
//            for bit (-0 = +0) are solved as one key with a multiplicity (key_groups.h): by symmetry
//            and uniqueness the same optimum, the same a on every copy. Canon, Polish,
//            Accept and Fallback as in canon.h. A path (here: the previous boundary's classes
//            carried over, then active-set steps over all new keys at once) only proposes a
//            partition; it is returned polished if its margins are proved >= 2t, else a
//            cold-started double-double solve decides. New copies of a key share what its old ones
//            held, then the active set goes on. A list that nothing is known of begins as
//            sampled_start.h says.
// Shapes:    keys [count][key_dim] f64 row-major, in rank order.
// Units:     problem.h.
// Requires:  finite keys that passed CheckKeys (Append checks). Truncate: solution is the one of
//            the first num_keys keys (LETHE_CHECK on the sizes).
// Rejects:   Append, SetEdited: INVALID_ARGUMENT. Solve, SetEdited: FAILED_PRECONDITION when n u_kappa
//            > ridge/2; then this solver is of no use.
// Effects:   Append only stores keys; Solve makes solution() that of all stored keys. Truncate
//            drops the later keys, overwriting the bytes of keys without a copy left and every
//            cached number that depends on them. Copying copies the keys and the solution, not the
//            caches. SetEdited carries the solution over as one warm start, and the Gram rows of keys
//            that stay; nothing in this solver depends on a key that went.
// Numerics:  solution() is a function of (keys in order, params) alone: not of how they were
//            appended, truncated, solved before or copied. smallest_margin too. Counters are not.
//            Cost of Solve after 64 new keys O(n + 64 D d + changes D (d + s) + s^2 changes), D
//            distinct keys, s of them in the margin set; for n <= M O(64 (n + D d)) and more on a
//            copy's first Solve. Memory O(n + D d + s^2 + D |S u E|), the last at most
//            GramCache::kRowBytes between solves.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_CANONICAL_H_
#define LETHE_MEMORY_SVDD_CANONICAL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "memory/svdd/backward.h"
#include "memory/svdd/key_groups.h"
#include "memory/svdd/problem.h"

namespace lethe::svdd {

// How often which way was taken. No part of any digest.
struct Counters {
  int64_t solves = 0;            // Solve calls with n > M
  int64_t accepted = 0;          // the path's partition was proved
  int64_t fallbacks = 0;         // double-double cold solves
  int64_t ambiguous = 0;         // of these, partitions not proved either
  int64_t more_digits = 0;       // polishes that needed the wide fixed-point rounding
  int64_t pivot_failures = 0;    // the f64 active set did not settle
  int64_t uncertified_gaps = 0;  // fallbacks that ended without the certified gap (0 expected)
  int64_t kernel_values = 0;     // Gram entries evaluated
};

class CanonicalSolver {
 public:
  explicit CanonicalSolver(const Params& params);
  ~CanonicalSolver();
  CanonicalSolver(const CanonicalSolver& other);
  CanonicalSolver& operator=(const CanonicalSolver&) = delete;

  absl::Status Append(absl::Span<const double> keys);
  absl::Status Solve();
  // Becomes the solver of the keys that `edit` makes of those of `before`, solved unless they are the
  // ones that its solution is of; this one has no keys yet. Counters start at 0.
  absl::Status SetEdited(const CanonicalSolver& before, const KeyEdit& edit);
  void Truncate(int64_t num_keys, const Solution& solution);
  // backward.h at the solution, with the factor that Solve left; LETHE_CHECK: the solution is that of
  // all keys present.
  SolutionGradient Backward(const SolutionAdjoint& adjoint);

  int64_t num_keys() const;
  const Params& params() const;
  const Solution& solution() const;  // of the keys present at the last Solve or Truncate
  Counters counters() const;
  const KeyGroups& key_groups() const;
  std::vector<double> keys() const;  // all, in rank order
  size_t state_bytes() const;        // caches included

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The canonical solution of a key list in one call.
absl::StatusOr<Solution> SolveCanonical(const Params& params, absl::Span<const double> keys);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_CANONICAL_H_
