#include "memory/svdd/canon.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/fault.h"
#include "kernels/gram/gram.h"
#include "memory/svdd/fallback.h"
#include "memory/svdd/polish.h"
#include "memory/svdd/weighted_row_sum.h"

namespace lethe::svdd {
namespace {

constexpr double kUnit = 0x1.0p-53;

// The sets of a partition of the distinct keys, and what the gradient checks need.
struct Sets {
  std::vector<int64_t> margin;
  std::vector<int64_t> error;
  std::vector<int64_t> support;  // both, ascending
  double margin_copies = 0.0;
  double error_copies = 0.0;
};

Sets SetsOf(absl::Span<const Partition> classes, absl::Span<const double> weights) {
  Sets sets;
  for (size_t i = 0; i < classes.size(); ++i) {
    if (classes[i] == Partition::kReserve) continue;
    const bool in_margin = classes[i] == Partition::kMargin;
    (in_margin ? sets.margin : sets.error).push_back(static_cast<int64_t>(i));
    (in_margin ? sets.margin_copies : sets.error_copies) += weights[i];
    sets.support.push_back(static_cast<int64_t>(i));
  }
  return sets;
}

// sum_j totals_j K(i, support_j) + ridge a_i, twice.
DoubleDouble WideGradient(GramCache* gram, int64_t i, const std::vector<int64_t>& support,
                          const std::vector<DoubleDouble>& totals, const DoubleDouble& ridge_term) {
  std::vector<double> values(support.size());
  const std::vector<int64_t> row = {i};
  gram->Block(row, support, absl::MakeSpan(values));
  DoubleDouble sum = ridge_term;
  for (size_t k = 0; k < support.size(); ++k) sum += totals[k] * values[k];
  return sum * 2.0;
}

// Error of WideGradient: under 7u^2 a term, that of totals included, on a sum of magnitude at most
// m + 1.
double WideGradientError(size_t support_size, double mass) {
  return (4.0 * static_cast<double>(support_size) + 20.0) * 0x1.0p-103 * (mass + 2.0);
}

// The sums of one Accept, evaluated from the rows.
class FreshRowSums final : public RowSums {
 public:
  explicit FreshRowSums(GramCache* gram) : gram_(gram) {}

  absl::Span<const double> Of(const std::vector<int64_t>& support,
                              const std::vector<double>& totals, double* error) override {
    WeightedRowSum(gram_, support, totals, &sums_, GramCache::kPassBytes);
    double total = 0.0;
    for (const double t : totals) total += t;
    *error = kUnit * 1.001 * total * (0.125 * static_cast<double>(support.size()) + 10.0);
    return sums_;
  }

 private:
  GramCache* gram_;
  std::vector<double> sums_;
};

// What a margin adds to smallest_margin: its f64 bound if that is enough, else the level that was
// proved; negative when not even `required` was. The same on every path, as f64 bounds come from
// rounded numbers.
struct Levels {
  double threshold;
  double required;

  template <typename Prove>
  double Settle(double bound, const Prove& prove) const {
    if (bound >= 2.0 * threshold) return bound;
    const double proved = prove();
    if (proved >= 2.0 * threshold) return 2.0 * threshold;
    return proved >= required ? required : -1.0;
  }
};

class Acceptance {
 public:
  Acceptance(GramCache* gram, const Params& params, absl::Span<const Partition> classes,
             Levels levels, RowSums* row_sums)
      : gram_(gram),
        row_sums_(row_sums),
        params_(params),
        classes_(classes),
        levels_(levels),
        weights_(gram->weights()),
        mass_(Mass(params, gram->num_keys())),
        sets_(SetsOf(classes, weights_)),
        a_(classes.size(), 0.0) {
    for (const int64_t i : sets_.error) a_[static_cast<size_t>(i)] = 1.0;
  }

  bool WithMargin(CholeskyFactor* factor, Solution* solution, Counters* counters);
  bool WithEmptyMargin(Solution* solution);

 private:
  bool Lower(double margin) {
    smallest_ = std::min(smallest_, margin);
    return margin >= 0.0;
  }
  bool CheckGradients(const PartitionSystem& system, double rho);
  void Finish(Solution* solution) {
    solution->num_keys = gram_->num_keys();
    solution->mass = mass_;
    solution->classes = gram_->groups().ToRanks(classes_);
    solution->a = gram_->groups().ToRanks(absl::MakeConstSpan(a_));
    solution->ambiguous = false;
    solution->smallest_margin = smallest_;
  }

  GramCache* gram_;
  RowSums* row_sums_;
  const Params& params_;
  absl::Span<const Partition> classes_;
  Levels levels_;
  absl::Span<const double> weights_;
  double mass_;
  Sets sets_;
  std::vector<double> a_;  // rounded
  double smallest_ = std::numeric_limits<double>::infinity();
};

bool Acceptance::WithMargin(CholeskyFactor* factor, Solution* solution, Counters* counters) {
  PartitionSystem system(gram_, mass_, params_.ridge, RidgeLower(params_, gram_->num_keys()),
                         sets_.margin, sets_.error);
  SyncFactor(gram_, weights_, sets_.margin, factor);
  if (!system.Refine(*factor)) return false;
  for (const DoubleDouble& a : system.a()) {
    if (a - system.radius() < levels_.required || a + system.radius() > 1.0 - levels_.required) {
      return false;
    }
  }
  std::vector<double> rounded;
  bool used_more_digits = false;
  if (!system.RoundTo(&rounded, &solution->rho, &used_more_digits)) return false;
  if (used_more_digits) ++counters->more_digits;
  for (size_t k = 0; k < rounded.size(); ++k) {
    a_[static_cast<size_t>(sets_.margin[k])] = rounded[k];
    if (!Lower(std::min(rounded[k], 1.0 - rounded[k]) - kUnit)) return false;
  }
  if (!CheckGradients(system, solution->rho)) return false;
  Finish(solution);
  return true;
}

bool Acceptance::CheckGradients(const PartitionSystem& system, double rho) {
  std::vector<double> totals;
  std::vector<DoubleDouble> wide_totals;
  size_t on_margin = 0;
  for (const int64_t id : sets_.support) {
    const size_t i = static_cast<size_t>(id);
    totals.push_back(weights_[i] * a_[i]);
    const bool in_margin = classes_[i] == Partition::kMargin;
    wide_totals.push_back((in_margin ? system.a()[on_margin++] : DoubleDouble(1.0)) * weights_[i]);
  }
  double sum_error = 0.0;
  const absl::Span<const double> sums = row_sums_->Of(sets_.support, totals, &sum_error);
  const double lambda = mass_ * (1.0 - rho);
  const double s = sets_.margin_copies;
  const double error = GradientError(sum_error, mass_, s);
  const double wide_error = WideGradientError(sets_.support.size(), mass_) +
                            2.0 * std::sqrt(s) * system.radius() + system.lambda_radius();
  for (size_t i = 0; i < classes_.size(); ++i) {
    if (classes_[i] == Partition::kMargin || weights_[i] == 0.0) continue;
    const double sign = classes_[i] == Partition::kReserve ? 1.0 : -1.0;
    const double own = classes_[i] == Partition::kError ? params_.ridge : 0.0;
    const double bound = sign * (2.0 * (sums[i] + own) - lambda) - error;
    const double margin = levels_.Settle(bound, [&] {
      const DoubleDouble gradient =
          WideGradient(gram_, static_cast<int64_t>(i), sets_.support, wide_totals, own);
      return sign * (gradient - system.lambda()).hi - wide_error;
    });
    if (!Lower(margin)) return false;
  }
  return true;
}

bool Acceptance::WithEmptyMargin(Solution* solution) {
  if (sets_.error_copies != mass_) return false;
  std::vector<double> totals;
  for (const int64_t i : sets_.error) totals.push_back(weights_[static_cast<size_t>(i)]);
  const std::vector<DoubleDouble> wide_totals(totals.begin(), totals.end());
  double sum_error = 0.0;
  const absl::Span<const double> sums = row_sums_->Of(sets_.error, totals, &sum_error);
  const double error = GradientError(sum_error, mass_, 0.0);
  const double wide_error = WideGradientError(sets_.error.size(), mass_);
  double error_max = 0.0;
  for (const int64_t i : sets_.error) error_max = std::max(error_max, sums[static_cast<size_t>(i)]);
  // lambda, from the rows that may hold the largest gradient of E; in rank order, so one value on
  // every path.
  DoubleDouble lambda;
  for (const int64_t i : sets_.error) {
    if (sums[static_cast<size_t>(i)] < error_max - 2.0 * error) continue;
    const DoubleDouble gradient = WideGradient(gram_, i, sets_.error, wide_totals, params_.ridge);
    if (gradient > lambda) lambda = gradient;
  }
  for (size_t i = 0; i < classes_.size(); ++i) {
    if (classes_[i] == Partition::kError || weights_[i] == 0.0) continue;
    const double bound = 0.5 * (2.0 * sums[i] - lambda.hi - error);
    const double margin = levels_.Settle(bound, [&] {
      const DoubleDouble gradient =
          WideGradient(gram_, static_cast<int64_t>(i), sets_.error, wide_totals, 0.0);
      return 0.5 * ((gradient - lambda).hi - 2.0 * wide_error);
    });
    if (!Lower(margin)) return false;
  }
  solution->rho = RoundToGrid(-(lambda / mass_) + 1.0);
  Finish(solution);
  return true;
}

Solution AmbiguousSolution(const KeyGroups& groups, const FallbackResult& result, double mass) {
  Solution solution;
  solution.num_keys = groups.num_keys();
  solution.mass = mass;
  solution.rho = RoundToGrid(-(result.lambda / mass) + 1.0);
  solution.classes = groups.ToRanks(absl::MakeConstSpan(result.classes));
  std::vector<double> a;
  for (size_t i = 0; i < result.a.size(); ++i) {
    const Partition place = result.classes[i];
    a.push_back(place == Partition::kMargin  ? RoundToGrid(result.a[i])
                : place == Partition::kError ? 1.0
                                             : 0.0);
  }
  solution.a = groups.ToRanks(absl::MakeConstSpan(a));
  solution.ambiguous = true;
  return solution;
}

// The mutant: the path's own rounding, as a server would hold it that trusts its update.
Solution UnpolishedSolution(const KeyGroups& groups, const Start& proposal, double mass) {
  Solution solution;
  solution.num_keys = groups.num_keys();
  solution.mass = mass;
  solution.rho = 1.0 - proposal.lambda / mass;
  solution.classes = groups.ToRanks(absl::MakeConstSpan(proposal.classes));
  solution.a = groups.ToRanks(absl::MakeConstSpan(proposal.a));
  return solution;
}

}  // namespace

double RidgeLower(const Params& params, int64_t num_keys) {
  return params.ridge - static_cast<double>(num_keys) * GramErrorBound(params.key_dim);
}

double MarginThreshold(const Params& params, int64_t num_keys) {
  const double n = static_cast<double>(num_keys);
  const double m = Mass(params, num_keys);
  const double d = static_cast<double>(params.key_dim);
  const double floor = 2.0 * m * (m + n) * (n + d) * 0x1.0p-103 / RidgeLower(params, num_keys);
  return std::max(0x1.0p-30, 2.0 * std::sqrt(floor));
}

double GradientError(double sum_error, double mass, double margin_copies) {
  return 2.0 * sum_error + kUnit * (20.0 * mass + 2.0 * margin_copies + 40.0);
}

bool Accept(GramCache* gram, const Params& params, absl::Span<const Partition> classes,
            double threshold, double required, CholeskyFactor* factor, Solution* solution,
            Counters* counters, RowSums* row_sums) {
  LETHE_CHECK(static_cast<int64_t>(classes.size()) == gram->num_groups());
  FreshRowSums fresh(gram);
  Acceptance acceptance(gram, params, classes, {threshold, required},
                        row_sums != nullptr ? row_sums : &fresh);
  const bool has_margin =
      std::find(classes.begin(), classes.end(), Partition::kMargin) != classes.end();
  return has_margin ? acceptance.WithMargin(factor, solution, counters)
                    : acceptance.WithEmptyMargin(solution);
}

Solution Canon(GramCache* gram, const Params& params, const Start* proposal, CholeskyFactor* factor,
               Counters* counters) {
  const int64_t n = gram->num_keys();
  const double mass = Mass(params, n);
  const double threshold = MarginThreshold(params, n);
  Solution solution;
  if (proposal != nullptr) {
    if (FaultActive(Fault::kPolishSkipped)) {
      return UnpolishedSolution(gram->groups(), *proposal, mass);
    }
    if (Accept(gram, params, proposal->classes, threshold, 2.0 * threshold, factor, &solution,
               counters)) {
      ++counters->accepted;
      return solution;
    }
  }
  ++counters->fallbacks;
  const FallbackResult result =
      Fallback(gram, mass, params.ridge, RidgeLower(params, n), threshold);
  if (!result.certified) ++counters->uncertified_gaps;
  factor->Clear();  // the path's rounding may decide step (1) only
  if (Accept(gram, params, result.classes, threshold, threshold, factor, &solution, counters)) {
    return solution;
  }
  ++counters->ambiguous;
  return AmbiguousSolution(gram->groups(), result, mass);
}

Solution SaturatedSolution(const Params& params, int64_t num_keys,
                           absl::Span<const DoubleDouble> row_sums) {
  Solution solution;
  solution.num_keys = num_keys;
  solution.mass = Mass(params, num_keys);
  solution.classes.assign(static_cast<size_t>(num_keys), Partition::kError);
  solution.a.assign(static_cast<size_t>(num_keys), 1.0);
  solution.smallest_margin = std::numeric_limits<double>::infinity();
  if (row_sums.empty()) return solution;
  // ceil(m) = n: the smallest h, that is the largest row sum.
  DoubleDouble largest = row_sums[0];
  for (const DoubleDouble& sum : row_sums) largest = largest < sum ? sum : largest;
  const DoubleDouble lambda = (largest + params.ridge) * 2.0;
  solution.rho = RoundToGrid(-(lambda / solution.mass) + 1.0);
  return solution;
}

}  // namespace lethe::svdd
