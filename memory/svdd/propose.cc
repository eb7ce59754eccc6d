#include "memory/svdd/propose.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/types/span.h"

#include "kernels/base/check.h"
#include "kernels/base/wiped.h"
#include "memory/svdd/primal_solver.h"
#include "memory/svdd/weighted_row_sum.h"

namespace lethe::svdd {
namespace {

constexpr int kMaxRounds = 200;
constexpr size_t kNearKeys = 64;

class Proposal {
 public:
  Proposal(GramCache* gram, double mass, double ridge, size_t keep_bytes, CholeskyFactor* factor,
           Start* start)
      : gram_(gram),
        weights_(gram->weights()),
        mass_(mass),
        ridge_(ridge),
        keep_bytes_(keep_bytes),
        factor_(factor),
        start_(start) {}

  bool Run(const std::vector<double>* start_sums);

 private:
  double Total(size_t i) const { return weights_[i] * start_->a[i]; }
  // lambda's own rounding.
  double Slack() const { return PrimalSolver::kTolerance * std::max(1.0, start_->lambda); }
  void SumAll();
  // lambda of the start: the gradient of the margin set, which is common to most of it, else the
  // largest in E.
  double StartLambda() const;
  // Members of R (or E) with the wrong gradient sign, worst first, at most `limit`, and if there are
  // any (or always) the kNearKeys next ones, of which some will be wrong once the first ones have
  // moved lambda; ascending.
  std::vector<int64_t> Wrong(Partition place, size_t limit, bool always) const;
  bool HasWrongErrors() const;
  // The working set with these reserve keys, ascending.
  std::vector<int64_t> WorkingSet(const std::vector<int64_t>& reserves) const;
  // Solves on ids; writes classes and a back and brings the sums up to date.
  bool SolveOn(const std::vector<int64_t>& ids);
  // What keys outside of ids add to the gradients of those in it, given ids' Gram matrix.
  std::vector<double> FixedPart(const std::vector<int64_t>& ids, const double* gram) const;

  GramCache* gram_;
  absl::Span<const double> weights_;
  double mass_;
  double ridge_;
  size_t keep_bytes_;
  CholeskyFactor* factor_;
  Start* start_;
  std::vector<double> sums_;  // sum_j w_j a_j K_ij
  size_t num_fixed_ = 0;      // error keys outside of the last working set
};

bool Proposal::Run(const std::vector<double>* start_sums) {
  if (start_sums != nullptr) {
    sums_ = *start_sums;
  } else {
    SumAll();
  }
  start_->lambda = StartLambda();
  std::vector<int64_t> reserves =
      Wrong(Partition::kReserve, std::max<size_t>(64, static_cast<size_t>(mass_)), false);
  for (int round = 0; round < kMaxRounds; ++round) {
    const std::vector<int64_t> ids = WorkingSet(reserves);
    if (!SolveOn(ids)) return false;
    reserves = Wrong(Partition::kReserve, std::max<size_t>(64, ids.size() / 2), false);
    if (reserves.empty() && !(num_fixed_ > 0 && HasWrongErrors())) return true;
  }
  return false;
}

void Proposal::SumAll() {
  const Support support = SupportOf(*start_, weights_);
  WeightedRowSum(gram_, support.indices, support.totals, &sums_, keep_bytes_);
}

double Proposal::StartLambda() const {
  std::vector<double> margin;
  double error_max = 0.0;
  for (size_t i = 0; i < sums_.size(); ++i) {
    const double gradient = 2.0 * (sums_[i] + ridge_ * start_->a[i]);
    if (start_->classes[i] == Partition::kMargin) {
      margin.push_back(gradient);
    } else if (start_->classes[i] == Partition::kError) {
      error_max = std::max(error_max, gradient);
    }
  }
  return margin.empty() ? error_max : Median(std::move(margin));
}

std::vector<int64_t> Proposal::Wrong(Partition place, size_t limit, bool always) const {
  const bool reserve = place == Partition::kReserve;
  const double sign = reserve ? 1.0 : -1.0;
  const double bound = 0.5 * (start_->lambda - sign * Slack()) - (reserve ? 0.0 : ridge_);
  std::vector<std::pair<double, int64_t>> members;  // the worst is the least
  size_t num_wrong = 0;
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (start_->classes[i] != place) continue;
    members.emplace_back(sign * sums_[i], static_cast<int64_t>(i));
    num_wrong += sign * sums_[i] < sign * bound ? 1 : 0;
  }
  if (num_wrong == 0 && !always) return {};
  limit = std::min(limit, kWrongAtOnce);
  const size_t count = std::min(members.size(), std::min(limit, num_wrong) + kNearKeys);
  std::nth_element(members.begin(), members.begin() + static_cast<std::ptrdiff_t>(count) - 1,
                   members.end());
  std::vector<int64_t> wrong;
  for (size_t k = 0; k < count; ++k) wrong.push_back(members[k].second);
  std::sort(wrong.begin(), wrong.end());
  return wrong;
}

bool Proposal::HasWrongErrors() const {
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (start_->classes[i] != Partition::kError) continue;
    if (2.0 * (sums_[i] + ridge_) > start_->lambda + Slack()) return true;
  }
  return false;
}

std::vector<int64_t> Proposal::WorkingSet(const std::vector<int64_t>& reserves) const {
  std::vector<int64_t> ids;
  const auto num_errors = static_cast<size_t>(
      std::count(start_->classes.begin(), start_->classes.end(), Partition::kError));
  const bool whole = num_errors <= kWholeError;
  for (size_t i = 0; i < sums_.size(); ++i) {
    const Partition place = start_->classes[i];
    if (place == Partition::kMargin || (place == Partition::kError && whole)) {
      ids.push_back(static_cast<int64_t>(i));
    }
  }
  ids.insert(ids.end(), reserves.begin(), reserves.end());
  if (!whole) {
    const std::vector<int64_t> errors = Wrong(Partition::kError, num_errors, true);
    ids.insert(ids.end(), errors.begin(), errors.end());
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<double> Proposal::FixedPart(const std::vector<int64_t>& ids, const double* gram) const {
  std::vector<double> part(ids.size());
  for (size_t k = 0; k < ids.size(); ++k) part[k] = 2.0 * sums_[static_cast<size_t>(ids[k])];
  for (size_t k = 0; k < ids.size(); ++k) {
    const double total = Total(static_cast<size_t>(ids[k]));
    if (total != 0.0) Axpy(-2.0 * total, gram + k * ids.size(), ids.size(), part.data());
  }
  return part;
}

bool Proposal::SolveOn(const std::vector<int64_t>& ids) {
  const size_t w = ids.size();
  WipedVector<double> buffer = gram_->TakeBuffer(w * w);
  gram_->Block(ids, ids, w, buffer.data());
  std::vector<Partition> classes(w);
  std::vector<double> a(w);
  std::vector<double> weights(w);
  double mass = mass_;  // of ids
  num_fixed_ = 0;
  for (size_t i = 0, k = 0; i < weights_.size(); ++i) {
    if (k < w && ids[k] == static_cast<int64_t>(i)) {
      classes[k] = start_->classes[i];
      a[k] = start_->a[i];
      weights[k++] = weights_[i];
    } else if (start_->classes[i] == Partition::kError) {
      mass -= weights_[i];
      ++num_fixed_;
    }
  }
  const std::vector<double> fixed =
      num_fixed_ > 0 ? FixedPart(ids, buffer.data()) : std::vector<double>();
  PrimalSolver solver(ids, weights, absl::MakeConstSpan(buffer).first(w * w), fixed, mass, ridge_,
                      factor_);
  const bool settled = solver.Run(&classes, &a);
  Support changed;
  for (size_t k = 0; k < w; ++k) {
    const auto i = static_cast<size_t>(ids[k]);
    const double before = Total(i);
    start_->classes[i] = classes[k];
    start_->a[i] = a[k];
    if (Total(i) == before) continue;
    changed.indices.push_back(ids[k]);
    changed.totals.push_back(Total(i) - before);
  }
  start_->lambda = solver.lambda();
  gram_->GiveBuffer(std::move(buffer));
  if (num_fixed_ == 0) {
    SumAll();
    return settled;
  }
  std::vector<double> change;
  WeightedRowSum(gram_, changed.indices, changed.totals, &change, GramCache::kPassBytes);
  for (size_t i = 0; i < change.size(); ++i) sums_[i] += change[i];
  return settled;
}

}  // namespace

bool Propose(GramCache* gram, double mass, double ridge, CholeskyFactor* factor, Start* start,
             size_t keep_bytes, const std::vector<double>* start_sums) {
  LETHE_CHECK(static_cast<int64_t>(start->classes.size()) == gram->num_groups());
  return Proposal(gram, mass, ridge, keep_bytes, factor, start).Run(start_sums);
}

}  // namespace lethe::svdd
