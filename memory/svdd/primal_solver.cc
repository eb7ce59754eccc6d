#include "memory/svdd/primal_solver.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace lethe::svdd {

PrimalSolver::PrimalSolver(absl::Span<const int64_t> ids, absl::Span<const double> weights,
                           absl::Span<const double> gram, absl::Span<const double> fixed,
                           double mass, double ridge, CholeskyFactor* factor)
    : ids_(ids),
      weights_(weights),
      gram_(gram),
      fixed_(fixed),
      mass_(mass),
      ridge_(ridge),
      factor_(factor) {
  LETHE_CHECK(gram.size() == ids.size() * ids.size() && weights.size() == ids.size() &&
              (fixed.empty() || fixed.size() == ids.size()));
}

bool PrimalSolver::Run(std::vector<Partition>* classes, std::vector<double>* a) {
  const size_t n = ids_.size();
  LETHE_CHECK(classes->size() == n && a->size() == n);
  classes_ = *classes;
  totals_.resize(n);
  error_part_.assign(n, 0.0);
  std::copy(fixed_.begin(), fixed_.end(), error_part_.begin());
  for (size_t j = 0; j < n; ++j) {
    totals_[j] = weights_[j] * (*a)[j];
    if (classes_[j] == Partition::kError) MoveError(j, 1.0);
  }
  SyncFactor();
  const int64_t limit = 20 * static_cast<int64_t>(n) + 200;
  bool settled = false;
  size_t block = kFirstBlock;
  int64_t steps_before = 0;
  while (!settled && num_steps_ < limit) {
    ++num_steps_;
    if (!local_.empty() && !Step()) continue;
    UpdateGradient();
    if (local_.empty()) EmptyMarginLambda();
    const std::vector<size_t> wrong = WorstFirst(block);
    settled = wrong.empty();
    for (const size_t local : wrong) EnterMargin(local);
    // Few steps since the last block: most of it stayed. Many: it pushed against the bounds.
    const int64_t steps = num_steps_ - steps_before;
    steps_before = num_steps_;
    block = 2 * steps <= static_cast<int64_t>(block) ? 2 * block : std::max<size_t>(1, block / 2);
  }
  *classes = classes_;
  for (size_t j = 0; j < n; ++j) (*a)[j] = totals_[j] / weights_[j];
  return settled;
}

void PrimalSolver::MoveError(size_t local, double sign) {
  error_count_ += sign * weights_[local];
  Axpy(2.0 * sign * weights_[local], Column(local), ids_.size(), error_part_.data());
}

void PrimalSolver::SyncFactor() {
  local_.clear();
  std::vector<bool> present(ids_.size(), false);
  std::vector<size_t> leaving;
  double removal_cost = 0.0;
  for (size_t p = 0; p < factor_->size(); ++p) {
    const auto at = std::lower_bound(ids_.begin(), ids_.end(), factor_->ids()[p]);
    const size_t local = static_cast<size_t>(at - ids_.begin());
    const bool known =
        at != ids_.end() && *at == factor_->ids()[p] && weights_[local] == factor_->weights()[p];
    local_.push_back(local);
    if (known && classes_[local] == Partition::kMargin) {
      present[local] = true;
    } else {
      leaving.push_back(p);
      const double rest = static_cast<double>(factor_->size() - p);
      removal_cost += 2.0 * rest * rest;
    }
  }
  const double s =
      static_cast<double>(std::count(classes_.begin(), classes_.end(), Partition::kMargin));
  if (removal_cost > s * s * s / 6.0) {
    // A rebuild is cheaper.
    factor_->Clear();
    local_.clear();
    leaving.clear();
    std::fill(present.begin(), present.end(), false);
  }
  for (size_t k = leaving.size(); k-- > 0;) {
    factor_->Remove(leaving[k]);
    local_.erase(local_.begin() + static_cast<std::ptrdiff_t>(leaving[k]));
  }
  factor_->Reserve(static_cast<size_t>(s));
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (classes_[i] == Partition::kMargin && !present[i]) EnterMargin(i);
  }
}

void PrimalSolver::EnterMargin(size_t local) {
  if (classes_[local] == Partition::kError) MoveError(local, -1.0);
  classes_[local] = Partition::kMargin;
  std::vector<double> column(local_.size());
  const double* gram = Column(local);
  for (size_t p = 0; p < local_.size(); ++p) column[p] = 2.0 * gram[local_[p]];
  factor_->Append(ids_[local], column, weights_[local]);
  local_.push_back(local);
}

void PrimalSolver::LeaveMargin(size_t position, Partition place) {
  const size_t local = local_[position];
  classes_[local] = place;
  totals_[local] = place == Partition::kError ? weights_[local] : 0.0;
  if (place == Partition::kError) MoveError(local, 1.0);
  factor_->Remove(position);
  local_.erase(local_.begin() + static_cast<std::ptrdiff_t>(position));
}

bool PrimalSolver::Step() {
  const size_t s = local_.size();
  std::vector<double> ones(s, 1.0);
  std::vector<double> target(s);
  for (size_t p = 0; p < s; ++p) target[p] = error_part_[local_[p]];
  factor_->SolveLower(absl::MakeSpan(ones), absl::MakeSpan(target));
  // lambda = (c + 1'A^-1 b)/(1'A^-1 1), totals = A^-1 (lambda 1 - b).
  lambda_ = ((mass_ - error_count_) + FastDot(ones.data(), target.data(), s)) /
            FastDot(ones.data(), ones.data(), s);
  for (size_t p = 0; p < s; ++p) target[p] = lambda_ * ones[p] - target[p];
  factor_->SolveUpper(absl::MakeSpan(target));
  double step = 1.0;
  size_t blocking = s;
  for (size_t p = 0; p < s; ++p) {
    const double from = totals_[local_[p]];
    const double bound = weights_[local_[p]];
    double length = 1.0;
    if (target[p] < 0.0) length = from / (from - target[p]);
    if (target[p] > bound) length = (bound - from) / (target[p] - from);
    if (length < step) {
      step = length;
      blocking = p;
    }
  }
  for (size_t p = 0; p < s; ++p) {
    double& value = totals_[local_[p]];
    value = blocking == s ? target[p] : value + step * (target[p] - value);
  }
  if (blocking == s) return true;
  const bool at_bound = target[blocking] > 0.0;
  LeaveMargin(blocking, at_bound ? Partition::kError : Partition::kReserve);
  return false;
}

void PrimalSolver::UpdateGradient() {
  gradient_ = error_part_;
  for (const size_t local : local_) {
    Axpy(2.0 * totals_[local], Column(local), ids_.size(), gradient_.data());
  }
  for (size_t j = 0; j < totals_.size(); ++j) {
    gradient_[j] += 2.0 * ridge_ * (totals_[j] / weights_[j]);
  }
}

void PrimalSolver::EmptyMarginLambda() {
  lambda_ = 0.0;
  for (size_t j = 0; j < classes_.size(); ++j) {
    if (classes_[j] == Partition::kError) lambda_ = std::max(lambda_, gradient_[j]);
  }
}

std::vector<size_t> PrimalSolver::WorstFirst(size_t limit) const {
  const double slack = kTolerance * std::max(1.0, lambda_);
  std::vector<std::pair<double, size_t>> wrong;  // by falling violation, then rank
  size_t partner = ids_.size();
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (classes_[i] == Partition::kMargin) continue;
    const bool in_error = classes_[i] == Partition::kError;
    const double violation = in_error ? gradient_[i] - lambda_ : lambda_ - gradient_[i];
    if (violation > slack) wrong.emplace_back(-violation, i);
    if (in_error && violation == 0.0 && partner == ids_.size()) partner = i;
  }
  if (wrong.size() > limit) {
    std::nth_element(wrong.begin(), wrong.begin() + static_cast<std::ptrdiff_t>(limit) - 1,
                     wrong.end());
    wrong.resize(limit);
  }
  std::sort(wrong.begin(), wrong.end());
  std::vector<size_t> members;
  members.reserve(wrong.size() + 1);
  for (const auto& [violation, i] : wrong) members.push_back(i);
  // With an empty margin set the key of E with the largest gradient must give what the others take.
  if (local_.empty() && !members.empty() && partner != ids_.size()) members.push_back(partner);
  return members;
}

}  // namespace lethe::svdd
