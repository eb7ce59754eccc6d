#include "memory/svdd/backward.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/base/check.h"
#include "kernels/gram/gram.h"
#include "memory/svdd/polish.h"

namespace lethe::svdd {
namespace {

// The distinct keys of the margin and error sets, margin first.
struct DualSupport {
  std::vector<int64_t> ids;
  size_t num_margin = 0;
  std::vector<double> a_totals;     // W, a summed over the copies
  std::vector<double> dual_totals;  // Y, p summed over the copies
  std::vector<bool> has_dual;       // some copy's p is not 0, although they may cancel in Y
};

DualSupport DualSupportOf(const KeyGroups& groups, const Solution& solution) {
  DualSupport support;
  for (const Partition wanted : {Partition::kMargin, Partition::kError}) {
    for (int64_t group = 0; group < groups.num_groups(); ++group) {
      const double weight = groups.weights()[static_cast<size_t>(group)];
      if (weight == 0.0) continue;
      const auto rank = static_cast<size_t>(groups.FirstRank(group));
      if (solution.classes[rank] != wanted) continue;
      support.ids.push_back(group);
      support.a_totals.push_back(weight * solution.a[rank]);
    }
    if (wanted == Partition::kMargin) support.num_margin = support.ids.size();
  }
  support.dual_totals.assign(support.ids.size(), 0.0);
  support.has_dual.assign(support.ids.size(), false);
  return support;
}

// p per rank for a margin set that is not empty.
std::vector<double> MarginDual(GramCache* gram, const Params& params, double mass,
                               const DualSupport& support, const SolutionAdjoint& adjoint,
                               CholeskyFactor* factor) {
  const KeyGroups& groups = gram->groups();
  const size_t n = static_cast<size_t>(groups.num_keys());
  const std::vector<int64_t> margin(
      support.ids.begin(), support.ids.begin() + static_cast<std::ptrdiff_t>(support.num_margin));
  SyncFactor(gram, groups.weights(), margin, factor);
  std::vector<double> mean(static_cast<size_t>(groups.num_groups()), 0.0);
  for (size_t i = 0; i < adjoint.a.size(); ++i) {
    const auto group = static_cast<size_t>(groups.GroupOf(static_cast<int64_t>(i)));
    mean[group] += adjoint.a[i] / groups.weights()[group];
  }
  // p0 = (1'A^-1 a' - rho'/m)/(1'A^-1 1), w P = A^-1 (a' - p0 1) with A = L L'.
  const size_t s = factor->size();
  std::vector<double> ones(s, 1.0);
  std::vector<double> totals(s);
  for (size_t k = 0; k < s; ++k) totals[k] = mean[static_cast<size_t>(factor->ids()[k])];
  factor->SolveLower(absl::MakeSpan(ones), absl::MakeSpan(totals));
  const double shift = (FastDot(ones.data(), totals.data(), s) - adjoint.rho / mass) /
                       FastDot(ones.data(), ones.data(), s);
  Axpy(-shift, ones.data(), s, totals.data());
  factor->SolveUpper(absl::MakeSpan(totals));

  std::vector<double> of_group(mean.size(), 0.0);  // P
  std::vector<bool> in_margin(mean.size(), false);
  for (size_t k = 0; k < s; ++k) {
    const auto group = static_cast<size_t>(factor->ids()[k]);
    of_group[group] = totals[k] / groups.weights()[group];
    in_margin[group] = true;
  }
  std::vector<double> dual(n, 0.0);
  for (size_t i = 0; i < n; ++i) {
    const auto group = static_cast<size_t>(groups.GroupOf(static_cast<int64_t>(i)));
    if (!in_margin[group]) continue;
    dual[i] = of_group[group];
    if (!adjoint.a.empty()) dual[i] += (adjoint.a[i] - mean[group]) / (2.0 * params.ridge);
  }
  return dual;
}

// p per rank where a is constant: the keys whose h is rho.
std::vector<double> EmptyMarginDual(GramCache* gram, const Params& params, double mass,
                                    const DualSupport& support, double rho_adjoint) {
  const KeyGroups& groups = gram->groups();
  std::vector<double> dual(static_cast<size_t>(groups.num_keys()), 0.0);
  std::vector<double> column(support.ids.size());
  std::vector<double> sums(support.ids.size(), 0.0);  // (K + ridge I)a, largest where h is smallest
  for (size_t k = 0; k < support.ids.size(); ++k) {
    gram->Block(support.ids, absl::MakeConstSpan(support.ids).subspan(k, 1),
                absl::MakeSpan(column));
    Axpy(support.a_totals[k], column.data(), column.size(), sums.data());
    sums[k] += params.ridge;
  }
  const double largest = *std::max_element(sums.begin(), sums.end());
  double copies = 0.0;
  std::vector<bool> has_rho(static_cast<size_t>(groups.num_groups()), false);
  for (size_t k = 0; k < sums.size(); ++k) {
    if (sums[k] != largest) continue;
    has_rho[static_cast<size_t>(support.ids[k])] = true;
    copies += groups.weights()[static_cast<size_t>(support.ids[k])];
  }
  for (size_t i = 0; i < dual.size(); ++i) {
    const int64_t group = groups.GroupOf(static_cast<int64_t>(i));
    if (has_rho[static_cast<size_t>(group)]) dual[i] = rho_adjoint / (mass * copies);
  }
  return dual;
}

// The kernel-weighted sums of y_g - y_h over the support h, for one support key g.
struct PairSums {
  std::vector<double> by_a;     // sum_h W_h K_gh (y_g - y_h)
  std::vector<double> by_dual;  // sum_h Y_h K_gh (y_g - y_h)
  double spread = 0.0;          // sum_h W_h K_gh |y_g - y_h|^2
};

void SumPairs(const KeyGroups& groups, const DualSupport& support, size_t at,
              absl::Span<const double> column, PairSums* sums) {
  const size_t dim = static_cast<size_t>(groups.dim());
  std::fill(sums->by_a.begin(), sums->by_a.end(), 0.0);
  std::fill(sums->by_dual.begin(), sums->by_dual.end(), 0.0);
  sums->spread = 0.0;
  const absl::Span<const double> key = groups.Key(support.ids[at]);
  for (size_t k = 0; k < support.ids.size(); ++k) {
    const double with_a = support.a_totals[k] * column[k];
    const double with_dual = support.dual_totals[k] * column[k];
    // Two keys without p have no part in any gradient.
    if (!support.has_dual[at] && !support.has_dual[k]) continue;
    const absl::Span<const double> other = groups.Key(support.ids[k]);
    double squared = 0.0;
    for (size_t c = 0; c < dim; ++c) {
      const double difference = key[c] - other[c];
      sums->by_a[c] += with_a * difference;
      sums->by_dual[c] += with_dual * difference;
      squared += difference * difference;
    }
    sums->spread += with_a * squared;
  }
}

void AddKeyGradients(GramCache* gram, const Params& params, const Solution& solution,
                     const DualSupport& support, SolutionGradient* gradient) {
  const KeyGroups& groups = gram->groups();
  const size_t dim = static_cast<size_t>(groups.dim());
  const size_t d = support.ids.size();
  std::vector<std::vector<size_t>> ranks(static_cast<size_t>(groups.num_groups()));
  for (size_t i = 0; i < gradient->dual.size(); ++i) {
    ranks[static_cast<size_t>(groups.GroupOf(static_cast<int64_t>(i)))].push_back(i);
  }
  const double scale = 4.0 / (params.sigma * params.sigma);
  PairSums sums{std::vector<double>(dim), std::vector<double>(dim), 0.0};
  std::vector<double> column(d);
  double spread = 0.0;
  for (size_t k = 0; k < d; ++k) {
    gram->Block(support.ids, absl::MakeConstSpan(support.ids).subspan(k, 1),
                absl::MakeSpan(column));
    SumPairs(groups, support, k, column, &sums);
    spread += support.dual_totals[k] * sums.spread;
    for (const size_t i : ranks[static_cast<size_t>(support.ids[k])]) {
      const double with_dual = scale * gradient->dual[i];
      const double with_a = scale * solution.a[i];
      for (size_t c = 0; c < dim; ++c) {
        gradient->keys[i * dim + c] = with_dual * sums.by_a[c] + with_a * sums.by_dual[c];
      }
    }
  }
  gradient->sigma = -scale / params.sigma * spread;
}

}  // namespace

SolutionGradient SolutionBackward(GramCache* gram, const Params& params, const Solution& solution,
                                  const SolutionAdjoint& adjoint, CholeskyFactor* factor) {
  const size_t n = static_cast<size_t>(gram->num_keys());
  LETHE_CHECK(solution.a.size() == n && (adjoint.a.empty() || adjoint.a.size() == n));
  SolutionGradient gradient;
  gradient.keys.assign(n * static_cast<size_t>(params.key_dim), 0.0);
  if (n == 0) return gradient;
  const KeyGroups& groups = gram->groups();
  DualSupport support = DualSupportOf(groups, solution);
  gradient.dual = support.num_margin > 0
                      ? MarginDual(gram, params, solution.mass, support, adjoint, factor)
                      : EmptyMarginDual(gram, params, solution.mass, support, adjoint.rho);
  std::vector<size_t> place(static_cast<size_t>(groups.num_groups()), 0);
  for (size_t k = 0; k < support.ids.size(); ++k) place[static_cast<size_t>(support.ids[k])] = k;
  for (size_t i = 0; i < n; ++i) {
    if (gradient.dual[i] == 0.0) continue;
    const size_t k = place[static_cast<size_t>(groups.GroupOf(static_cast<int64_t>(i)))];
    support.dual_totals[k] += gradient.dual[i];
    support.has_dual[k] = true;
    gradient.ridge -= 2.0 * gradient.dual[i] * solution.a[i];
  }
  AddKeyGradients(gram, params, solution, support, &gradient);
  return gradient;
}

DecisionGradient DecisionBackward(const Params& params, absl::Span<const double> keys,
                                  const Solution& solution, absl::Span<const double> queries,
                                  absl::Span<const double> f_adjoint) {
  const size_t dim = static_cast<size_t>(params.key_dim);
  const size_t n = solution.a.size();
  LETHE_CHECK(n > 0 && keys.size() == n * dim && queries.size() == f_adjoint.size() * dim);
  DecisionGradient gradient;
  gradient.adjoint.a.assign(n, 0.0);
  gradient.keys.assign(n * dim, 0.0);
  gradient.queries.assign(queries.size(), 0.0);
  std::vector<double> row(n);
  const double squared_sigma = params.sigma * params.sigma;
  for (size_t q = 0; q < f_adjoint.size(); ++q) {
    const absl::Span<const double> query = queries.subspan(q * dim, dim);
    GramRow(query, keys, params.sigma, absl::MakeSpan(row));
    const double scale = 2.0 * f_adjoint[q] / solution.mass;
    gradient.adjoint.rho += f_adjoint[q];
    for (size_t i = 0; i < n; ++i) {
      gradient.adjoint.a[i] += scale * row[i];
      const double weight = scale * solution.a[i] * row[i];  // of d log K
      if (weight == 0.0) continue;
      double squared = 0.0;
      for (size_t c = 0; c < dim; ++c) {
        const double difference = query[c] - keys[i * dim + c];
        const double pull = 2.0 * weight * difference / squared_sigma;
        gradient.keys[i * dim + c] += pull;
        gradient.queries[q * dim + c] -= pull;
        squared += difference * difference;
      }
      gradient.sigma += 2.0 * weight * squared / (squared_sigma * params.sigma);
    }
  }
  return gradient;
}

}  // namespace lethe::svdd
