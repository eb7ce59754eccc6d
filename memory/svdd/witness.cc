#include "memory/svdd/witness.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "memory/svdd/cholesky.h"
#include "memory/svdd/distinct_keys.h"
#include "memory/svdd/wide_columns.h"

namespace lethe::svdd {
namespace {

constexpr int kMaxPasses = 40;

class Refinement {
 public:
  Refinement(const Params& params, const DistinctKeys& keys, double mass);

  std::optional<Witness> Run(const ReportedSolution& reported);

 private:
  // |r0| + |r1|, the residuals left in residual_ and sum_residual_; the factor is made of the rows
  // on the way the first time.
  double Evaluate();
  void Correct();

  double copies(size_t j) const { return keys_.copies(keys_.margin()[j]); }

  const DistinctKeys& keys_;
  double ridge_;
  double mass_;  // m - |E|
  WideColumns margin_;
  std::vector<DoubleDouble> error_sums_;  // sum_E K_ie w_e
  CholeskyFactor factor_;                 // of the totals w a
  std::vector<double> inverse_ones_;
  double inverse_sum_ = 0.0;
  Witness witness_;
  std::vector<double> residual_;
  double sum_residual_ = 0.0;
};

Refinement::Refinement(const Params& params, const DistinctKeys& keys, double mass)
    : keys_(keys),
      ridge_(params.ridge),
      mass_(mass),
      margin_(params.key_dim, params.sigma, keys.margin().size()),
      factor_(params.ridge) {
  std::vector<size_t> error;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys.place(i) != Partition::kError) continue;
    error.push_back(i);
    mass_ -= keys.copies(i);
  }
  WideColumns columns(params.key_dim, params.sigma, error.size());
  WideArray weights(columns.padded_size());
  for (size_t j = 0; j < error.size(); ++j) {
    columns.SetKey(j, keys.key(error[j]));
    weights.Set(j, keys.copies(error[j]));
  }
  WideArray row(columns.padded_size());
  for (size_t j = 0; j < keys.margin().size(); ++j) {
    const absl::Span<const double> key = keys.key(keys.margin()[j]);
    margin_.SetKey(j, key);
    columns.Row(key, &row);
    error_sums_.push_back(WideDot(row, weights));
  }
}

double Refinement::Evaluate() {
  const size_t s = keys_.margin().size();
  WideArray totals(margin_.padded_size());
  DoubleDouble rest = mass_;
  for (size_t j = 0; j < s; ++j) {
    const DoubleDouble total = witness_.a[j] * copies(j);
    totals.Set(j, total);
    rest += -total;
  }
  sum_residual_ = rest.hi;
  double size = std::abs(sum_residual_);
  residual_.resize(s);
  WideArray row(margin_.padded_size());
  const bool first = factor_.size() == 0;
  if (first) factor_.Reserve(s);
  std::vector<double> column;
  for (size_t j = 0; j < s; ++j) {
    margin_.Row(keys_.key(keys_.margin()[j]), &row);
    const DoubleDouble sum = WideDot(row, totals) + error_sums_[j] + witness_.a[j] * ridge_;
    residual_[j] = (witness_.lambda - sum * 2.0).hi;
    size = std::max(size, std::abs(residual_[j]));
    if (!first) continue;
    column.assign(row.hi.begin(), row.hi.begin() + static_cast<std::ptrdiff_t>(j));
    for (double& value : column) value *= 2.0;
    factor_.Append(static_cast<int64_t>(j), column, copies(j));
  }
  return size;
}

void Refinement::Correct() {
  const size_t s = residual_.size();
  if (inverse_ones_.empty()) {
    inverse_ones_.assign(s, 1.0);
    factor_.Solve(absl::MakeSpan(inverse_ones_));
    for (const double x : inverse_ones_) inverse_sum_ += x;
  }
  std::vector<double> solved = residual_;
  factor_.Solve(absl::MakeSpan(solved));
  double sum = 0.0;
  for (const double x : solved) sum += x;
  // 2(K + ridge/w) A = lambda 1 + ..., sum A = mass: for the residuals of (lambda, A).
  const double lambda = (sum_residual_ - sum) / inverse_sum_;
  for (size_t j = 0; j < s; ++j) {
    witness_.a[j] += (solved[j] + lambda * inverse_ones_[j]) / copies(j);
  }
  witness_.lambda += lambda;
}

std::optional<Witness> Refinement::Run(const ReportedSolution& reported) {
  for (const size_t i : keys_.margin()) witness_.a.emplace_back(reported.a[keys_.rows(i)[0]]);
  witness_.lambda = 0.0;
  double before = std::numeric_limits<double>::infinity();
  Witness best = witness_;
  // Until a pass no longer halves the residual. The first starts from lambda = 0, so its residual
  // says nothing yet.
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    const double size = Evaluate();
    if (!std::isfinite(size)) return std::nullopt;
    if (pass > 1 && !(size < 0.5 * before)) {
      if (size < before) best = witness_;
      break;
    }
    before = size;
    best = witness_;
    Correct();
  }
  const bool inside = std::all_of(best.a.begin(), best.a.end(),
                                  [](const DoubleDouble& x) { return x > 0.0 && x < 1.0; });
  // Below double-double's reach: a residual that a plain solution would leave is no convergence.
  const bool converged = before <= 0x1.0p-80 * (1.0 + std::abs(best.lambda.hi));
  if (!inside || !converged || best.lambda < 0.0) return std::nullopt;
  return best;
}

}  // namespace

std::optional<Witness> RefineWitness(const Params& params, absl::Span<const double> keys,
                                     const ReportedSolution& reported) {
  LETHE_DCHECK(keys.size() == reported.a.size() * static_cast<size_t>(params.key_dim));
  const size_t n = reported.a.size();
  if (static_cast<double>(n) <= params.box_mass) return std::nullopt;
  const DistinctKeys distinct(params.key_dim, keys, reported.classes);
  const size_t s = distinct.margin().size();
  if (!distinct.uniform() || s == 0 || s > kWitnessKeysMax) return std::nullopt;
  Refinement refinement(params, distinct, Mass(params, static_cast<int64_t>(n)));
  return refinement.Run(reported);
}

}  // namespace lethe::svdd
