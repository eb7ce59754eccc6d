#include "memory/svdd/start.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/base/check.h"
#include "memory/svdd/cholesky.h"
#include "memory/svdd/weighted_row_sum.h"

namespace lethe::svdd {
namespace {

constexpr double kAtBound = 0x1.0p-40;

// New keys with a > 0 whose gradient without their own part is above that of the margin set are inside
// what the others enclose: they begin in reserve, which saves the active set a step for each.
void DropInnerKeys(const std::vector<bool>& is_new, double ridge, GramCache* gram, Start* start) {
  const absl::Span<const double> weights = gram->weights();
  std::vector<int64_t> ids;  // the kept margin set, then the new keys
  for (size_t i = 0; i < is_new.size(); ++i) {
    if (start->classes[i] == Partition::kMargin && !is_new[i]) {
      ids.push_back(static_cast<int64_t>(i));
    }
  }
  const size_t num_margin = ids.size();
  for (size_t i = 0; i < is_new.size(); ++i) {
    if (start->classes[i] != Partition::kReserve && is_new[i]) {
      ids.push_back(static_cast<int64_t>(i));
    }
  }
  if (num_margin == 0 || ids.size() == num_margin) return;
  const Support support = SupportOf(*start, weights);
  std::vector<double> gradient(ids.size(), 0.0);
  std::vector<double> column(ids.size());
  for (size_t k = 0; k < support.indices.size(); ++k) {
    gram->Block(ids, absl::MakeConstSpan(support.indices).subspan(k, 1), absl::MakeSpan(column));
    Axpy(2.0 * support.totals[k], column.data(), column.size(), gradient.data());
  }
  for (size_t k = 0; k < ids.size(); ++k) {
    gradient[k] += 2.0 * ridge * start->a[static_cast<size_t>(ids[k])];
  }
  const double lambda =
      Median({gradient.begin(), gradient.begin() + static_cast<std::ptrdiff_t>(num_margin)});
  for (size_t k = num_margin; k < ids.size(); ++k) {
    const auto i = static_cast<size_t>(ids[k]);
    if (gradient[k] - 2.0 * (weights[i] + ridge) * start->a[i] <= lambda) continue;
    start->classes[i] = Partition::kReserve;
    start->a[i] = 0.0;
  }
}

// A total of `missing` to the margin set, in proportion to its room; returns what is left.
double GiveToMargin(double missing, double share, absl::Span<const double> weights, Start* start) {
  double room = 0.0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (start->classes[i] == Partition::kMargin) room += weights[i] * (1.0 - start->a[i]);
  }
  const double given = std::min(missing, share * room);
  if (!(given > 0.0)) return missing;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (start->classes[i] != Partition::kMargin) continue;
    start->a[i] += (1.0 - start->a[i]) * (given / room);
  }
  return missing - given;
}

// Whole keys by rising gradient, the last one in part; returns what is left.
double GiveToReserve(double missing, absl::Span<const double> weights,
                     absl::Span<const double> sums, Start* start) {
  std::vector<std::pair<double, size_t>> reserve;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (start->classes[i] == Partition::kReserve && weights[i] > 0.0) {
      reserve.emplace_back(sums[i], i);
    }
  }
  // A key takes one or more.
  const size_t wanted = std::min(reserve.size(), static_cast<size_t>(missing) + 1);
  std::partial_sort(reserve.begin(), reserve.begin() + static_cast<std::ptrdiff_t>(wanted),
                    reserve.end());
  for (const auto& [sum, i] : reserve) {
    if (!(missing > 0.0)) break;
    const bool whole = missing >= weights[i];
    start->classes[i] = whole ? Partition::kError : Partition::kMargin;
    start->a[i] = whole ? 1.0 : missing / weights[i];
    missing = whole ? missing - weights[i] : 0.0;
  }
  return missing;
}

}  // namespace

Start ColdStart(absl::Span<const double> weights, double mass) {
  Start start;
  start.classes.assign(weights.size(), Partition::kReserve);
  start.a.assign(weights.size(), 0.0);
  double rest = mass;
  for (size_t i = 0; rest > 0.0; ++i) {
    const bool whole = rest >= weights[i];
    start.classes[i] = whole ? Partition::kError : Partition::kMargin;
    start.a[i] = whole ? 1.0 : rest / weights[i];
    rest = whole ? rest - weights[i] : 0.0;
  }
  return start;
}

Start Carry(const KeyGroups& groups, const Solution& solution) {
  const size_t num_groups = static_cast<size_t>(groups.num_groups());
  std::vector<double> old_weights(num_groups, 0.0);
  Start start;
  start.classes.assign(num_groups, Partition::kReserve);
  start.a.assign(num_groups, 0.0);
  for (int64_t rank = 0; rank < solution.num_keys; ++rank) {
    const size_t group = static_cast<size_t>(groups.GroupOf(rank));
    old_weights[group] += 1.0;
    start.classes[group] = solution.classes[static_cast<size_t>(rank)];
    start.a[group] = solution.a[static_cast<size_t>(rank)];
  }
  for (size_t i = 0; i < num_groups; ++i) {
    if (old_weights[i] == groups.weights()[i] || start.classes[i] == Partition::kReserve) continue;
    start.classes[i] = Partition::kMargin;
    start.a[i] = old_weights[i] * start.a[i] / groups.weights()[i];
  }
  return start;
}

Start CarryEdited(GramCache* gram, const Solution& solution, const KeyEdit& edit, double ridge) {
  const absl::Span<const double> weights = gram->weights();
  LETHE_CHECK(static_cast<int64_t>(edit.heir_of.size()) == gram->num_keys());
  Start start;
  start.classes.assign(weights.size(), Partition::kReserve);
  start.a.assign(weights.size(), 0.0);
  std::vector<bool> is_new(weights.size(), false);
  for (size_t rank = 0; rank < edit.heir_of.size(); ++rank) {
    const int64_t from = edit.heir_of[rank];
    const auto group = static_cast<size_t>(gram->groups().GroupOf(static_cast<int64_t>(rank)));
    if (edit.kept[rank] == KeyEdit::kNone) is_new[group] = true;
    if (from < 0 || from >= solution.num_keys) continue;
    start.a[group] += solution.a[static_cast<size_t>(from)];
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    // A total of 1 or less a copy; whole only if every copy was.
    start.a[i] = std::min(start.a[i] / weights[i], 1.0);
    if (start.a[i] > 0.0) start.classes[i] = Partition::kMargin;
    if (start.a[i] == 1.0) start.classes[i] = Partition::kError;
  }
  DropInnerKeys(is_new, ridge, gram, &start);
  Refill(
      solution.mass, weights,
      [&] {
        const Support support = SupportOf(start, weights);
        std::vector<double> sums;
        WeightedRowSum(gram, support.indices, support.totals, &sums);
        return sums;
      },
      &start);
  return start;
}

void Refill(double mass, absl::Span<const double> weights,
            absl::FunctionRef<std::vector<double>()> sums, Start* start) {
  double missing = mass;
  for (size_t i = 0; i < weights.size(); ++i) missing -= weights[i] * start->a[i];
  missing = GiveToMargin(missing, 0.5, weights, start);
  if (missing > 0.0) missing = GiveToReserve(missing, weights, sums(), start);
  if (missing > 0.0) GiveToMargin(missing, 1.0, weights, start);
}

Support SupportOf(const Start& start, absl::Span<const double> weights) {
  Support support;
  for (size_t i = 0; i < start.classes.size(); ++i) {
    if (start.classes[i] == Partition::kReserve) continue;
    support.indices.push_back(static_cast<int64_t>(i));
    support.totals.push_back(weights[i] * start.a[i]);
  }
  return support;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<int64_t> SupportGroups(const KeyGroups& groups, const Solution& solution) {
  std::vector<int64_t> support;
  for (int64_t group = 0; group < groups.num_groups(); ++group) {
    const int64_t rank = groups.FirstRank(group);
    if (rank >= solution.num_keys) break;
    if (solution.classes[static_cast<size_t>(rank)] != Partition::kReserve) {
      support.push_back(group);
    }
  }
  return support;
}

void LeaveBounds(Start* start) {
  for (size_t i = 0; i < start->a.size(); ++i) {
    Partition& place = start->classes[i];
    if (place != Partition::kMargin) continue;
    if (start->a[i] < kAtBound) place = Partition::kReserve;
    if (1.0 - start->a[i] < kAtBound) place = Partition::kError;
    if (place != Partition::kMargin) start->a[i] = place == Partition::kError ? 1.0 : 0.0;
  }
}

}  // namespace lethe::svdd
