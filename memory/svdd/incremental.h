// IncrementalSolver: learns and unlearns single keys by the Cauwenberghs-Poggio homotopy, each
// operation ending in the canonical solution.
//
// Equation:  Cauwenberghs and Poggio (2001); Ramesh, SV-Attention, incremental solver, with K +
//            ridge I for K in every quadratic term and in the scaled variables a = alpha m of
//            problem.h. Along a sweep of some a_f (rates d_f) and of the mass (rate dm): A da_S =
//            dlambda 1 - 2 K_Sf d_f, sum da_S = dm - sum d_f, A = 2(K + ridge I)_SS; excess e_i =
//            2((K + ridge I)a)_i - lambda moves by 2 K_iS da_S + 2 K_if d_f - dlambda. Events,
//            smallest step first: a of S reaches 0 (to R) or 1 (to E); e of R or E reaches 0 (to
//            S); the swept key's e reaches 0 (Add: to S); the end of the sweep.
//              Add:    n <= M: a = 1. Else sweep the new a from 0 up to 1; then, if m < M, the mass
//                up to M.
//              Remove: n - 1 <= M: a = 1. Else sweep the a of the leaving keys, all at once, down
//                to 0.
//            Empty margin: if the others must give mass, lambda rises to the largest gradient in E
//            and the swept key; if they must take it, to the smallest in R; that key enters S.
//            Ties: steps of length 0 are executed; only the key just moved is barred, and only at
//            length 0; the lowest rank wins; after each operation members of S within 2^-40 of a
//            bound leave S.
// Shapes:    key: [key_dim]; ranks from 0, later keys move down when one is removed.
// Units:     a-units.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT: keys that CheckKeys refuses, ranks out of range or not ascending.
//            FAILED_PRECONDITION: n u_kappa > ridge/2. On error nothing changed.
// Effects:   Remove overwrites the key and every cached number of it; the factor is rebuilt after
//            it.
// Numerics:  solution() is that of SolveCanonical on the present keys, bit for bit: the homotopy
//            only proposes. After more than 20 n + 200 events the proposal is dropped. Cost
//            O(events n s).
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_INCREMENTAL_H_
#define LETHE_MEMORY_SVDD_INCREMENTAL_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

#include "memory/svdd/canonical.h"
#include "memory/svdd/cholesky.h"
#include "memory/svdd/gram_cache.h"
#include "memory/svdd/problem.h"

namespace lethe::svdd {

class IncrementalSolver {
 public:
  explicit IncrementalSolver(const Params& params);

  absl::Status Add(absl::Span<const double> key);
  absl::Status Remove(int64_t rank) { return RemoveSeveral({rank}); }
  absl::Status RemoveSeveral(absl::Span<const int64_t> ranks);

  const Solution& solution() const { return solution_; }
  const Counters& counters() const { return counters_; }
  int64_t num_keys() const { return gram_.num_keys(); }
  absl::Span<const double> keys() const { return gram_.keys(); }
  int64_t num_events() const { return num_events_; }

 private:
  struct Sweep {
    std::vector<int64_t> swept;
    std::vector<double> rates;
    double mass_rate = 0.0;
    double length = 0.0;
    int64_t entering = -1;  // the key whose own excess ends the sweep (Add)
  };
  struct Direction {
    std::vector<double> a;         // [n]
    std::vector<double> gradient;  // [n]
    double lambda = 0.0;
  };
  struct Event {
    double length = 0.0;
    int64_t index = -1;  // -1: the end of the sweep
  };
  enum class Outcome { kEnded, kEntered, kLost };

  Outcome Run(const Sweep& sweep);
  bool IsSwept(const Sweep& sweep, int64_t index) const;
  // Gives an empty margin set its member; kEntered when that is the entering key.
  Outcome FillMargin(const Sweep& sweep);
  Direction DirectionOf(const Sweep& sweep);
  Event NextEvent(const Sweep& sweep, const Direction& direction, double rest,
                  int64_t barred) const;
  // Length at which key i has an event, or infinity.
  double EventLength(const Sweep& sweep, const Direction& direction, int64_t i) const;
  void Advance(const Direction& direction, double length);
  void Move(int64_t index, const Direction& direction);
  void SetClass(int64_t index, Partition place);
  void LeaveBounds();
  void Prepare();
  // Canon with the homotopy's state as proposal, or with none.
  void Conclude(bool proposal);
  double Excess(size_t i) const { return gradient_[i] - lambda_; }

  Params params_;
  GramCache gram_;
  CholeskyFactor factor_;
  Solution solution_;
  Counters counters_;
  int64_t num_events_ = 0;
  // The homotopy's state during an operation.
  std::vector<Partition> classes_;
  std::vector<double> a_;
  std::vector<double> gradient_;  // 2((K + ridge I) a)_i
  double lambda_ = 0.0;
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_INCREMENTAL_H_
