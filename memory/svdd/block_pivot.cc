#include "memory/svdd/block_pivot.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "kernels/base/check.h"

namespace lethe::svdd {

BlockPivot::BlockPivot(absl::Span<const int64_t> ids, absl::Span<const double> gram, double mass,
                       double ridge, CholeskyFactor* factor)
    : ids_(ids), gram_(gram), mass_(mass), ridge_(ridge), factor_(factor) {
  LETHE_CHECK(gram.size() == ids.size() * ids.size());
}

bool BlockPivot::Run(std::vector<Partition>* classes) {
  LETHE_CHECK(classes->size() == ids_.size());
  classes_ = *classes;
  a_.assign(ids_.size(), 0.0);
  gradient_.assign(ids_.size(), 0.0);
  SyncFactor();
  size_t fewest = std::numeric_limits<size_t>::max();
  int patience = kPatience;
  bool settled = false;
  std::vector<size_t> wrong;
  for (int round = 0; round < kMaxRounds && !settled; ++round) {
    SyncFactor();
    SolveSystem();
    wrong.clear();
    if (local_.empty()) {
      settled = !WrongWithEmptyMargin(&wrong);
    } else {
      FindWrong(&wrong);
      settled = wrong.empty();
      if (wrong.size() < fewest) {
        fewest = wrong.size();
        patience = kPatience;
      } else if (patience > 0) {
        --patience;
      } else if (!settled) {
        wrong.resize(1);
      }
    }
    for (const size_t local : wrong) Move(local);
  }
  *classes = classes_;
  return settled;
}

void BlockPivot::Move(size_t local) {
  Partition& place = classes_[local];
  if (place == Partition::kMargin) {
    place = a_[local] > 0.5 ? Partition::kError : Partition::kReserve;
  } else {
    place = Partition::kMargin;
  }
  ++num_changes_;
}

// Makes the factor that of the margin set, by the cheaper of updates and a rebuild.
void BlockPivot::SyncFactor() {
  const auto find = [this](int64_t id) {
    const auto at = std::lower_bound(ids_.begin(), ids_.end(), id);
    return at != ids_.end() && *at == id ? static_cast<size_t>(at - ids_.begin()) : ids_.size();
  };
  size_t margin = 0;
  for (const Partition place : classes_) margin += place == Partition::kMargin ? 1u : 0u;
  std::vector<bool> present(ids_.size(), false);
  std::vector<size_t> leaving;
  local_.clear();
  double removal_cost = 0.0;
  for (size_t p = 0; p < factor_->size(); ++p) {
    const size_t local = find(factor_->ids()[p]);
    local_.push_back(local);
    if (local == ids_.size() || classes_[local] != Partition::kMargin) {
      leaving.push_back(p);
      const double rest = static_cast<double>(factor_->size() - p);
      removal_cost += 2.0 * rest * rest;
    } else {
      present[local] = true;
    }
  }
  const double s = static_cast<double>(margin);
  if (removal_cost > s * s * s / 6.0) {
    RebuildFactor();
    return;
  }
  for (size_t k = leaving.size(); k-- > 0;) {
    factor_->Remove(leaving[k]);
    local_.erase(local_.begin() + static_cast<std::ptrdiff_t>(leaving[k]));
  }
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (classes_[i] == Partition::kMargin && !present[i]) AppendToFactor(i);
  }
}

void BlockPivot::RebuildFactor() {
  factor_->Clear();
  local_.clear();
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (classes_[i] == Partition::kMargin) AppendToFactor(i);
  }
}

void BlockPivot::AppendToFactor(size_t local) {
  std::vector<double> column(local_.size());
  const double* gram = Column(local);
  for (size_t p = 0; p < local_.size(); ++p) column[p] = 2.0 * gram[local_[p]];
  factor_->Append(ids_[local], column, 2.0 * (gram[local] + ridge_));
  local_.push_back(local);
}

void BlockPivot::SolveSystem() {
  const size_t w = ids_.size();
  const size_t s = local_.size();
  // gradient_ first holds the part of the error set, 2 K 1_E.
  std::fill(gradient_.begin(), gradient_.end(), 0.0);
  double error_count = 0.0;
  for (size_t j = 0; j < w; ++j) {
    a_[j] = classes_[j] == Partition::kError ? 1.0 : 0.0;
    if (a_[j] == 0.0) continue;
    error_count += 1.0;
    Axpy(2.0, Column(j), w, gradient_.data());
  }
  if (s > 0) {
    std::vector<double> ones(s, 1.0);
    std::vector<double> part(s);
    for (size_t p = 0; p < s; ++p) part[p] = gradient_[local_[p]];
    factor_->SolveLower(absl::MakeSpan(ones));
    factor_->SolveLower(absl::MakeSpan(part));
    // lambda = (c + 1'A^-1 b)/(1'A^-1 1), a_S = A^-1 (lambda 1 - b).
    const double denominator = FastDot(ones.data(), ones.data(), s);
    const double numerator = (mass_ - error_count) + FastDot(ones.data(), part.data(), s);
    lambda_ = numerator / denominator;
    for (size_t p = 0; p < s; ++p) part[p] = lambda_ * ones[p] - part[p];
    factor_->SolveUpper(absl::MakeSpan(part));
    for (size_t p = 0; p < s; ++p) {
      a_[local_[p]] = part[p];
      Axpy(2.0 * part[p], Column(local_[p]), w, gradient_.data());
    }
  }
  for (size_t j = 0; j < w; ++j) gradient_[j] += 2.0 * ridge_ * a_[j];
}

void BlockPivot::FindWrong(std::vector<size_t>* wrong) const {
  const double slack = kTolerance * std::max(1.0, lambda_);
  for (size_t i = 0; i < ids_.size(); ++i) {
    bool is_wrong = false;
    switch (classes_[i]) {
      case Partition::kMargin:
        is_wrong = a_[i] < 0.0 || a_[i] > 1.0;
        break;
      case Partition::kError:
        is_wrong = gradient_[i] > lambda_ + slack;
        break;
      case Partition::kReserve:
        is_wrong = gradient_[i] < lambda_ - slack;
        break;
    }
    if (is_wrong) wrong->push_back(i);
  }
}

bool BlockPivot::WrongWithEmptyMargin(std::vector<size_t>* wrong) {
  size_t error = ids_.size();    // the largest gradient in E
  size_t reserve = ids_.size();  // the smallest in R
  double error_count = 0.0;
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (classes_[i] == Partition::kError) {
      error_count += 1.0;
      if (error == ids_.size() || gradient_[i] > gradient_[error]) error = i;
    } else if (reserve == ids_.size() || gradient_[i] < gradient_[reserve]) {
      reserve = i;
    }
  }
  if (error != ids_.size()) lambda_ = gradient_[error];
  const bool need_more = error_count < mass_;
  const bool need_less = error_count > mass_;
  if (!need_more && !need_less) {
    if (reserve == ids_.size() ||
        gradient_[reserve] >= lambda_ - kTolerance * std::max(1.0, lambda_)) {
      return false;
    }
    wrong->push_back(error);
    wrong->push_back(reserve);
  } else {
    wrong->push_back(need_more ? reserve : error);
  }
  return true;
}

}  // namespace lethe::svdd
