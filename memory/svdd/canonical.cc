#include "memory/svdd/canonical.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/wiped.h"
#include "kernels/gram/gram.h"
#include "memory/svdd/canon.h"
#include "memory/svdd/cholesky.h"
#include "memory/svdd/double_double.h"
#include "memory/svdd/gram_cache.h"
#include "memory/svdd/propose.h"
#include "memory/svdd/sampled_start.h"
#include "memory/svdd/start.h"

namespace lethe::svdd {

struct CanonicalSolver::State {
  explicit State(const Params& p) : params(p), gram(p.sigma, p.key_dim), factor(p.ridge) {}

  absl::Status CheckCount() const;
  void SolveSaturated();
  // A start, and up to where the rows that its sums need are kept (weighted_row_sum.h): a list that
  // nothing is known of may be solved once only.
  struct Path {
    Start start;
    size_t keep_bytes = GramCache::kRowBytes;
  };
  void SolveBeyondMass(Path path);
  // The solution of another list, if it is of the same mass and proved, as a start.
  Path EditedStart(const Solution& before, const KeyEdit& edit);
  Path WarmStart();
  Path NewStart(double mass) {
    return {SampledStart(&gram, mass, params.ridge), GramCache::kPassBytes};
  }
  void KeepSupportRows();
  // Overwrites and drops the caches whose bits say by which way the solution was reached.
  void DropPathNumbers();

  Params params;
  GramCache gram;
  Solution solution;
  Counters counters;
  // Caches from here: never part of a solution.
  CholeskyFactor factor;
  // For n <= M: sum_j K_ij over the first summed_ranks ranks j, one per distinct key among them.
  std::vector<DoubleDouble> row_sums;
  int64_t summed_ranks = 0;
  int64_t saturated_values = 0;  // kernel values of SolveSaturated
};

absl::Status CanonicalSolver::State::CheckCount() const {
  if (RidgeLower(params, gram.num_keys()) >= 0.5 * params.ridge) return absl::OkStatus();
  return absl::FailedPreconditionError("too many keys for this ridge: n u_kappa exceeds ridge/2");
}

// Row sums are folds in rank order, so adding keys continues them.
void CanonicalSolver::State::SolveSaturated() {
  const KeyGroups& groups = gram.groups();
  const size_t dim = static_cast<size_t>(params.key_dim);
  std::vector<double> row(static_cast<size_t>(groups.num_groups()));
  int64_t row_of = -1;
  for (int64_t rank = summed_ranks; rank < groups.num_keys(); ++rank) {
    const int64_t group = groups.GroupOf(rank);
    const bool is_new = group == static_cast<int64_t>(row_sums.size());
    const size_t seen = row_sums.size() + (is_new ? 1 : 0);
    if (row_of != group) {
      GramRow(groups.Key(group), groups.distinct_keys().first(seen * dim), params.sigma,
              absl::MakeSpan(row).first(seen));
      saturated_values += static_cast<int64_t>(seen);
      row_of = group;
    }
    for (size_t i = 0; i < row_sums.size(); ++i) row_sums[i] += row[i];
    if (!is_new) continue;
    DoubleDouble own;
    for (int64_t i = 0; i <= rank; ++i) own += row[static_cast<size_t>(groups.GroupOf(i))];
    row_sums.push_back(own);
  }
  summed_ranks = groups.num_keys();
  solution = SaturatedSolution(params, summed_ranks, row_sums);
}

CanonicalSolver::State::Path CanonicalSolver::State::WarmStart() {
  const double mass = Mass(params, gram.num_keys());
  if (solution.mass != mass || solution.ambiguous ||
      static_cast<double>(solution.num_keys) <= mass) {
    return NewStart(mass);
  }
  return {Carry(gram.groups(), solution)};
}

CanonicalSolver::State::Path CanonicalSolver::State::EditedStart(const Solution& before,
                                                                 const KeyEdit& edit) {
  const double mass = Mass(params, gram.num_keys());
  if (before.mass != mass || before.ambiguous) return NewStart(mass);
  return {CarryEdited(&gram, before, edit, params.ridge)};
}

void CanonicalSolver::State::SolveBeyondMass(Path path) {
  WipeFrom(&row_sums, 0);
  summed_ranks = 0;
  ++counters.solves;
  Start& start = path.start;
  const bool settled =
      Propose(&gram, Mass(params, gram.num_keys()), params.ridge, &factor, &start, path.keep_bytes);
  if (!settled) ++counters.pivot_failures;
  LeaveBounds(&start);
  solution = Canon(&gram, params, settled ? &start : nullptr, &factor, &counters);
  KeepSupportRows();
}

void CanonicalSolver::State::KeepSupportRows() {
  gram.KeepOnly(SupportGroups(gram.groups(), solution));
}

void CanonicalSolver::State::DropPathNumbers() {
  factor.Clear();
  factor = CholeskyFactor(params.ridge);
  gram.WipeBuffers();
}

CanonicalSolver::CanonicalSolver(const Params& params) : state_(std::make_unique<State>(params)) {}

CanonicalSolver::~CanonicalSolver() = default;

CanonicalSolver::CanonicalSolver(const CanonicalSolver& other)
    : state_(std::make_unique<State>(other.state_->params)) {
  state_->gram.CopyKeys(other.state_->gram);
  state_->solution = other.state_->solution;
  state_->counters = other.counters();
}

absl::Status CanonicalSolver::Append(absl::Span<const double> keys) {
  LETHE_RETURN_IF_ERROR(CheckKeys(state_->params, keys));
  state_->gram.Append(keys);
  return absl::OkStatus();
}

absl::Status CanonicalSolver::Solve() {
  const int64_t n = state_->gram.num_keys();
  if (state_->solution.num_keys == n) return absl::OkStatus();
  LETHE_RETURN_IF_ERROR(state_->CheckCount());
  if (static_cast<double>(n) <= state_->params.box_mass) {
    state_->SolveSaturated();
  } else {
    state_->SolveBeyondMass(state_->WarmStart());
  }
  return absl::OkStatus();
}

absl::Status CanonicalSolver::SetEdited(const CanonicalSolver& before, const KeyEdit& edit) {
  LETHE_CHECK(edit.heir_of.size() == edit.kept.size());
  LETHE_RETURN_IF_ERROR(CheckKeys(state_->params, edit.keys));
  state_->gram.SetEdited(before.state_->gram, edit);
  const int64_t n = num_keys();
  const Solution& carried = before.solution();
  bool unchanged = carried.num_keys == n;
  for (int64_t i = 0; unchanged && i < n; ++i) unchanged = edit.kept[static_cast<size_t>(i)] == i;
  if (unchanged) {
    state_->solution = carried;
    return absl::OkStatus();
  }
  if (n == 0 || static_cast<double>(n) <= state_->params.box_mass) {
    state_->gram.KeepOnly({});
    LETHE_RETURN_IF_ERROR(Solve());
  } else {
    LETHE_RETURN_IF_ERROR(state_->CheckCount());
    state_->SolveBeyondMass(state_->EditedStart(carried, edit));
  }
  state_->DropPathNumbers();
  return absl::OkStatus();
}

void CanonicalSolver::Truncate(int64_t num_keys, const Solution& solution) {
  LETHE_CHECK(num_keys >= 0 && num_keys <= state_->gram.num_keys() &&
              solution.num_keys <= num_keys);
  state_->gram.Truncate(num_keys);
  // Overwritten, then dropped: their numbers depend on the keys that went.
  state_->DropPathNumbers();
  WipeFrom(&state_->row_sums, 0);
  state_->summed_ranks = 0;
  WipeFrom(&state_->solution.a, 0);
  WipeFrom(&state_->solution.classes, 0);
  state_->solution = solution;
  state_->KeepSupportRows();
}

SolutionGradient CanonicalSolver::Backward(const SolutionAdjoint& adjoint) {
  return SolutionBackward(&state_->gram, state_->params, state_->solution, adjoint,
                          &state_->factor);
}

int64_t CanonicalSolver::num_keys() const { return state_->gram.num_keys(); }
const Params& CanonicalSolver::params() const { return state_->params; }
const Solution& CanonicalSolver::solution() const { return state_->solution; }
const KeyGroups& CanonicalSolver::key_groups() const { return state_->gram.groups(); }
std::vector<double> CanonicalSolver::keys() const { return key_groups().AllKeys(); }

Counters CanonicalSolver::counters() const {
  Counters counters = state_->counters;
  counters.kernel_values += state_->gram.num_evaluations() + state_->saturated_values;
  return counters;
}

size_t CanonicalSolver::state_bytes() const {
  return sizeof(State) + state_->gram.state_bytes() + state_->factor.state_bytes() +
         state_->row_sums.capacity() * sizeof(DoubleDouble) +
         state_->solution.a.capacity() * sizeof(double) +
         state_->solution.classes.capacity() * sizeof(Partition);
}

absl::StatusOr<Solution> SolveCanonical(const Params& params, absl::Span<const double> keys) {
  CanonicalSolver solver(params);
  LETHE_RETURN_IF_ERROR(solver.Append(keys));
  LETHE_RETURN_IF_ERROR(solver.Solve());
  return solver.solution();
}

}  // namespace lethe::svdd
