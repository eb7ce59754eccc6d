// IncrementalSolver: learns and unlearns single keys by the Cauwenberghs-Poggio homotopy, each
// operation ending in the canonical solution.
//
// Equation:  Cauwenberghs and Poggio (2001); Ramesh, SV-Attention, incremental solver, with K +
//            ridge I for K in every quadratic term and in the scaled variables a = alpha m of
//            problem.h, on distinct keys with multiplicities w. Along a sweep of some copies f
//            (rates d_f) and of the mass (rate dm): A dT_S = dlambda 1 - 2 K_Sf d_f, sum dT_S = dm -
//            sum d_f, T = w a, A = 2(K_SS + diag(ridge/w)); excess e_i = 2((K T)_i + ridge a_i) -
//            lambda moves by 2 K_iS dT_S + 2 K_if d_f + 2 ridge da_i - dlambda. Events, smallest
//            step first: a of S reaches 0 (to R) or 1 (to E); e of R or E reaches 0 (to S); the
//            swept key's e reaches 0 (Add: to S); the end of the sweep.
//              Add:    n <= M: a = 1. Else sweep the new copy's a from 0 up to 1 beside its equals,
//                whose a it has when its e reaches 0; join them; then, if m < M, the mass up to M.
//              Remove: n - 1 <= M: a = 1. Else take the leaving copies out of their keys (w falls)
//                and sweep their a, all at once, down to 0; when more than eight of them have
//                a > 0, their mass goes to others (start.h) and an active set (propose.h) settles it.
//            Empty margin: if the others must give mass, lambda rises to the largest gradient in E
//            and the swept key; if they must take it, to the smallest in R; that key enters S.
//            Ties: steps of length 0 are executed; only the key just moved is barred, and only at
//            length 0; the lowest rank wins; after each operation members of S within 2^-40 of a
//            bound leave S.
//            Between operations sum_j T_j K_ij stays held for every key i, exactly (kernel_sums.h). A
//            key that falls inside by more than the margins that are proved, and one that leaves from
//            reserve, change nothing else; else the sums change by the rows of S and of the keys that
//            crossed.
// Shapes:    key: [key_dim]; ranks from 0, later keys move down when one is removed.
// Units:     a-units.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT: keys that CheckKeys refuses, ranks out of range or not ascending.
//            FAILED_PRECONDITION: n u_kappa > ridge/2. On error nothing changed.
// Effects:   Remove overwrites the key (if no copy is left) and every cached number of it; the factor
//            is rebuilt after it, the held sums keep nothing of it.
// Numerics:  solution() is that of SolveCanonical on the present keys in all that SameBits compares: the
//            homotopy only proposes. Its smallest_margin is a proved bound, not always the same
//            number. After more than 20 n + 200 events the proposal is dropped. D distinct keys, s of
//            them in the margin set, e in the error set: Add of a key that falls inside O((s + e) d +
//            log D), Remove of a reserve key O(n), others O(n + events D s + D s + s (s + e)); for n
//            <= M O(n), and at the next solution() O(n d) for each key added since the last, all of
//            them after a removal. Memory as GramCache.
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_INCREMENTAL_H_
#define LETHE_MEMORY_SVDD_INCREMENTAL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

#include "memory/svdd/canonical.h"
#include "memory/svdd/cholesky.h"
#include "memory/svdd/gram_cache.h"
#include "memory/svdd/kernel_sums.h"
#include "memory/svdd/problem.h"
#include "memory/svdd/start.h"

namespace lethe::svdd {

class IncrementalSolver {
 public:
  explicit IncrementalSolver(const Params& params);

  absl::Status Add(absl::Span<const double> key);
  // [count][key_dim]; one solve for all.
  absl::Status AddSeveral(absl::Span<const double> keys);
  absl::Status Remove(int64_t rank) { return RemoveSeveral({rank}); }
  absl::Status RemoveSeveral(absl::Span<const int64_t> ranks);

  // Not const: for n <= M rho is evaluated when it is asked for.
  const Solution& solution();
  const Counters& counters() const { return counters_; }
  int64_t num_keys() const { return gram_.num_keys(); }
  std::vector<double> keys() const { return gram_.groups().AllKeys(); }
  int64_t num_events() const { return num_events_; }
  // For tests: what is held between operations, per group; of a hole, nothing of use.
  absl::Span<const int64_t> held_sums() const { return sums_.sums(); }
  size_t state_bytes() const;

 private:
  // Copies of one key that a sweep moves; weights_ does not count them.
  struct Loose {
    int64_t group = 0;
    double count = 1.0;
    double a = 0.0;
    double rate = 0.0;
  };
  struct Sweep {
    std::vector<Loose> loose;
    double mass_rate = 0.0;
    double length = 0.0;
    bool enters = false;  // the excess of loose[0] ends the sweep (Add)
  };
  struct Direction {
    std::vector<double> a;         // per group, of one copy; of active_ only
    std::vector<double> gradient;  // per group; of active_ only
    double lambda = 0.0;
    std::vector<int64_t> moving;  // groups whose totals change: the loose ones and S
    std::vector<double> rates;    // of these totals
    double speed = 0.0;           // no excess changes faster
  };
  struct Event {
    double length = 0.0;
    int64_t index = kEnd;
  };
  static constexpr int64_t kEnd = -1;     // of the sweep
  static constexpr int64_t kEnters = -2;  // loose[0]
  enum class Outcome { kEnded, kEntered, kLost };

  class HeldSums;

  absl::Status CheckCount(int64_t num_keys) const;
  bool IsSaturated(int64_t num_keys) const {
    return static_cast<double>(num_keys) <= params_.box_mass;
  }
  // solution() is proved for this many keys without another look at the rows.
  bool MarginsHold(int64_t num_keys) const;
  // All keys a = 1; nothing is held.
  void Saturate();
  void DropRowSums();
  // The sums of groups appended since.
  void HoldNewGroups();
  // The held totals of these groups.
  void Hold(const std::vector<int64_t>& groups, const std::vector<double>& totals);
  // Exactly these; others go. support ascends.
  void HoldOnly(const std::vector<int64_t>& support, const std::vector<double>& totals);
  std::vector<double> HeldValues() const;
  std::vector<int64_t> HeldGroups() const;
  // The margin set's first: every operation reads them, those of E only when they move.
  std::vector<int64_t> RowsToKeep() const;
  std::vector<double> HeldTotals(const std::vector<int64_t>& groups) const;
  // What every margin is measured with, by the held sums.
  struct MarginScale {
    double lambda = 0.0;
    double error = 0.0;
    bool has_margin = false;
  };
  MarginScale MakeMarginScale() const;
  double ReserveMargin(const MarginScale& scale, size_t group) const;
  // The smallest margin of the solution by the held sums: a function of the solution alone, and of no
  // key that left.
  double ProvedMargin() const;
  void WipeSolution();
  // The last key joins the reserve of the present solution if that is proved.
  bool JoinsReserve();
  // The keys leave the reserve.
  void LeaveReserve(absl::Span<const int64_t> ranks);
  // The keys leave, by one homotopy or, where they are many of the support, by an active set that
  // starts from what stays.
  void LeaveBySweep(absl::Span<const int64_t> ranks);
  void LeaveByProposal(absl::Span<const int64_t> ranks);
  // From `start`, whose sums it holds, to a proposal; false when it did not settle.
  bool ProposeFrom(Start* start);
  void Erase(absl::Span<const int64_t> ranks);
  // The group before of each group after.
  std::vector<int64_t> Compact();
  // The sweep of the new copy of `group`; false when it was lost.
  bool SweepIn(int64_t group);
  // Takes copies of the ranks' keys out of weights_.
  std::vector<Loose> TakeOut(absl::Span<const int64_t> ranks);
  void Join(const Loose& copy, Outcome outcome);
  Outcome Run(Sweep* sweep);
  // Gives an empty margin set its member; kEntered when that is the entering copy.
  Outcome FillMargin(const Sweep& sweep);
  // Watches the keys within `reach` of a crossing, S and the loose ones; brings the others' gradients up
  // to date.
  void Activate(const Sweep& sweep, double reach);
  void FindDirection(const Sweep& sweep);
  Event NextEvent(const Sweep& sweep, double rest, int64_t barred) const;
  // Length at which key i has an event, or infinity.
  double EventLength(int64_t i) const;
  double EnteringLength(const Loose& copy) const;
  void Advance(double length, Sweep* sweep);
  void Move(int64_t index);
  void SetClass(int64_t index, Partition place);
  // The homotopy starts at the canonical solution, which is of all ranks but those added since.
  void Prepare();
  void SyncMargin();
  // Canon with this proposal, or with none.
  void Conclude(Start* proposal);
  double Excess(size_t i) const { return gradient_[i] - lambda_; }
  // Gradient of a loose copy.
  double LooseGradient(const Loose& copy) const;

  Params params_;
  GramCache gram_;
  CholeskyFactor factor_;
  Solution solution_;
  bool rho_is_due_ = false;  // n <= M
  // For n <= M: holds the sums that rho is read off, of the keys up to the last solution().
  std::optional<CanonicalSolver> row_sums_;
  KernelSums sums_;           // of held_, per group of gram_; empty for n <= M
  std::vector<double> held_;  // totals
  Counters counters_;
  int64_t num_events_ = 0;
  // The homotopy's state during an operation, per group of gram_.
  std::vector<double> weights_;  // copies that are not loose; without one a key has no events
  std::vector<Partition> classes_;
  std::vector<double> a_;  // of one copy
  std::vector<double>
      gradient_;  // 2((K T)_i + ridge a_i), less what shift_ adds outside of active_
  double lambda_ = 0.0;
  Direction direction_;
  std::vector<int64_t> active_;   // groups, ascending
  std::vector<double> shift_;     // per group: the change of T since the last Activate
  std::vector<int64_t> shifted_;  // where it is not 0
  double reach_ = 0.0;            // all others were farther from a crossing then
  double drift_ = 0.0;            // and have come nearer by at most this
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_INCREMENTAL_H_
