#include "memory/svdd/canonical.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/gram/gram.h"
#include "memory/svdd/canon.h"
#include "memory/svdd/cholesky.h"
#include "memory/svdd/double_double.h"
#include "memory/svdd/gram_cache.h"
#include "memory/svdd/propose.h"

namespace lethe::svdd {

struct CanonicalSolver::State {
  explicit State(const Params& p) : params(p), gram(p.sigma, p.key_dim), factor(p.ridge) {}

  void SolveSaturated();
  void SolveBeyondMass();
  Start WarmStart() const;
  void KeepSupportRows();

  Params params;
  GramCache gram;
  Solution solution;
  Counters counters;
  // Caches from here: never part of a solution.
  CholeskyFactor factor;
  std::vector<DoubleDouble> row_sums;  // sum_j K_ij in rank order, for n <= M
};

// Row sums are folds in rank order, so adding keys continues them.
void CanonicalSolver::State::SolveSaturated() {
  const size_t n = static_cast<size_t>(gram.num_keys());
  const size_t dim = static_cast<size_t>(params.key_dim);
  std::vector<double> row(n);
  for (size_t j = row_sums.size(); j < n; ++j) {
    const absl::Span<double> up_to = absl::MakeSpan(row).first(j + 1);
    GramRow(gram.Key(static_cast<int64_t>(j)), gram.keys().first((j + 1) * dim), params.sigma,
            up_to);
    DoubleDouble own;
    for (size_t i = 0; i < j; ++i) {
      row_sums[i] += up_to[i];
      own += up_to[i];
    }
    row_sums.push_back(own + up_to[j]);
  }
  solution = SaturatedSolution(params, row_sums);
}

Start CanonicalSolver::State::WarmStart() const {
  const int64_t n = gram.num_keys();
  const double mass = Mass(params, n);
  if (solution.mass != mass || solution.ambiguous ||
      static_cast<double>(solution.num_keys) <= mass) {
    return ColdStart(n, mass);
  }
  Start start;
  start.classes = solution.classes;
  start.classes.resize(static_cast<size_t>(n), Partition::kReserve);
  start.a = solution.a;
  start.a.resize(static_cast<size_t>(n), 0.0);
  return start;
}

void CanonicalSolver::State::SolveBeyondMass() {
  row_sums.clear();
  ++counters.solves;
  Start start = WarmStart();
  const bool settled = Propose(&gram, Mass(params, gram.num_keys()), params.ridge, &factor, &start);
  if (!settled) ++counters.pivot_failures;
  solution = Canon(&gram, params, settled ? &start : nullptr, &factor, &counters);
  KeepSupportRows();
}

void CanonicalSolver::State::KeepSupportRows() {
  std::vector<int64_t> support;
  for (size_t i = 0; i < solution.classes.size(); ++i) {
    if (solution.classes[i] != Partition::kReserve) support.push_back(static_cast<int64_t>(i));
  }
  gram.KeepOnly(support);
}

CanonicalSolver::CanonicalSolver(const Params& params) : state_(std::make_unique<State>(params)) {}

CanonicalSolver::~CanonicalSolver() = default;

CanonicalSolver::CanonicalSolver(const CanonicalSolver& other)
    : state_(std::make_unique<State>(other.state_->params)) {
  state_->gram.Append(other.state_->gram.keys());
  state_->solution = other.state_->solution;
  state_->counters = other.state_->counters;
}

absl::Status CanonicalSolver::Append(absl::Span<const double> keys) {
  LETHE_RETURN_IF_ERROR(CheckKeys(state_->params, keys));
  state_->gram.Append(keys);
  return absl::OkStatus();
}

absl::Status CanonicalSolver::Solve() {
  const int64_t n = state_->gram.num_keys();
  if (state_->solution.num_keys == n) return absl::OkStatus();
  if (RidgeLower(state_->params, n) < 0.5 * state_->params.ridge) {
    return absl::FailedPreconditionError("too many keys for this ridge: n u_kappa exceeds ridge/2");
  }
  if (static_cast<double>(n) <= state_->params.box_mass) {
    state_->SolveSaturated();
  } else {
    state_->SolveBeyondMass();
  }
  return absl::OkStatus();
}

void CanonicalSolver::Truncate(int64_t num_keys, const Solution& solution) {
  LETHE_CHECK(num_keys >= 0 && num_keys <= state_->gram.num_keys() &&
              solution.num_keys <= num_keys);
  state_->gram.Truncate(num_keys);
  // Overwritten, then dropped: their numbers depend on the keys that went.
  state_->factor.Clear();
  state_->factor = CholeskyFactor(state_->params.ridge);
  std::fill(state_->row_sums.begin(), state_->row_sums.end(), DoubleDouble());
  state_->row_sums.clear();
  std::fill(state_->solution.a.begin(), state_->solution.a.end(), 0.0);
  state_->solution = solution;
  state_->KeepSupportRows();
}

int64_t CanonicalSolver::num_keys() const { return state_->gram.num_keys(); }
const Params& CanonicalSolver::params() const { return state_->params; }
const Solution& CanonicalSolver::solution() const { return state_->solution; }
const Counters& CanonicalSolver::counters() const { return state_->counters; }
absl::Span<const double> CanonicalSolver::keys() const { return state_->gram.keys(); }

size_t CanonicalSolver::state_bytes() const {
  return sizeof(State) + state_->gram.state_bytes() + state_->factor.state_bytes() +
         state_->row_sums.capacity() * sizeof(DoubleDouble) +
         state_->solution.a.capacity() * (sizeof(double) + sizeof(Partition));
}

absl::StatusOr<Solution> SolveCanonical(const Params& params, absl::Span<const double> keys) {
  CanonicalSolver solver(params);
  LETHE_RETURN_IF_ERROR(solver.Append(keys));
  LETHE_RETURN_IF_ERROR(solver.Solve());
  return solver.solution();
}

}  // namespace lethe::svdd
