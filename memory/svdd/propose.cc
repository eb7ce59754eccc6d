#include "memory/svdd/propose.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "hwy/highway.h"

#include "kernels/base/check.h"
#include "kernels/base/wiped.h"
#include "memory/svdd/primal_solver.h"

namespace lethe::svdd {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D4 = hn::FixedTag<double, 4>;

constexpr size_t kRowsAtOnce = 8;
constexpr int kMaxRounds = 200;
constexpr size_t kNearKeys = 64;
constexpr double kAtBound = 0x1.0p-40;

// sums += the weighted sum of up to eight rows.
void AddRows(const double* const* rows, const double* weights, size_t num_rows, size_t count,
             double* sums) {
  const D4 d;
  const size_t vector_count = count / 4 * 4;
  for (size_t i = 0; i < vector_count; i += 4) {
    auto sum = hn::Mul(hn::Set(d, weights[0]), hn::LoadU(d, rows[0] + i));
    for (size_t r = 1; r < num_rows; ++r) {
      sum = hn::MulAdd(hn::Set(d, weights[r]), hn::LoadU(d, rows[r] + i), sum);
    }
    hn::StoreU(hn::Add(sum, hn::LoadU(d, sums + i)), d, sums + i);
  }
  for (size_t i = vector_count; i < count; ++i) {
    double sum = weights[0] * rows[0][i];
    for (size_t r = 1; r < num_rows; ++r) sum = std::fma(weights[r], rows[r][i], sum);
    sums[i] += sum;
  }
}

struct Support {
  std::vector<int64_t> indices;
  std::vector<double> totals;  // w a
};

Support SupportOf(const Start& start, absl::Span<const double> weights) {
  Support support;
  for (size_t i = 0; i < start.classes.size(); ++i) {
    if (start.classes[i] == Partition::kReserve) continue;
    support.indices.push_back(static_cast<int64_t>(i));
    support.totals.push_back(weights[i] * start.a[i]);
  }
  return support;
}

// Reserve keys whose gradient is below lambda, worst first, at most `limit`, and if there are any the
// kNearKeys next ones, of which some will be wrong once the first ones have moved lambda; ascending.
std::vector<int64_t> WrongReserves(const Start& start, const std::vector<double>& sums,
                                   size_t limit) {
  const double bound =
      0.5 * (start.lambda - PrimalSolver::kTolerance * std::max(1.0, start.lambda));
  std::vector<std::pair<double, int64_t>> reserve;
  size_t num_wrong = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (start.classes[i] != Partition::kReserve) continue;
    reserve.emplace_back(sums[i], static_cast<int64_t>(i));
    num_wrong += sums[i] < bound ? 1 : 0;
  }
  if (num_wrong == 0) return {};
  const size_t count = std::min(reserve.size(), std::min(limit, num_wrong) + kNearKeys);
  std::nth_element(reserve.begin(), reserve.begin() + static_cast<std::ptrdiff_t>(count) - 1,
                   reserve.end());
  std::vector<int64_t> wrong;
  for (size_t k = 0; k < count; ++k) wrong.push_back(reserve[k].second);
  std::sort(wrong.begin(), wrong.end());
  return wrong;
}

// Solves on the working set; writes classes and a back.
bool SolveOn(const std::vector<int64_t>& ids, GramCache* gram, double mass, double ridge,
             CholeskyFactor* factor, Start* start) {
  const size_t w = ids.size();
  WipedVector<double> buffer = gram->TakeBuffer(w * w);
  gram->Block(ids, ids, w, buffer.data());
  std::vector<Partition> classes(w);
  std::vector<double> a(w);
  std::vector<double> weights(w);
  for (size_t k = 0; k < w; ++k) {
    classes[k] = start->classes[static_cast<size_t>(ids[k])];
    a[k] = start->a[static_cast<size_t>(ids[k])];
    weights[k] = gram->weights()[static_cast<size_t>(ids[k])];
  }
  PrimalSolver solver(ids, weights, absl::MakeConstSpan(buffer).first(w * w), mass, ridge, factor);
  const bool settled = solver.Run(&classes, &a);
  for (size_t k = 0; k < w; ++k) {
    start->classes[static_cast<size_t>(ids[k])] = classes[k];
    start->a[static_cast<size_t>(ids[k])] = a[k];
  }
  start->lambda = solver.lambda();
  gram->GiveBuffer(std::move(buffer));
  return settled;
}

// The middle one, which a few far-off ones do not move; 0 without any.
double Median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// lambda of a start: the gradient of the margin set, which is common to most of it, else the largest
// in E.
double LambdaOf(const Start& start, const std::vector<double>& sums, double ridge) {
  std::vector<double> margin;
  double error_max = 0.0;
  for (size_t i = 0; i < start.classes.size(); ++i) {
    const double gradient = 2.0 * (sums[i] + ridge * start.a[i]);
    if (start.classes[i] == Partition::kMargin) {
      margin.push_back(gradient);
    } else if (start.classes[i] == Partition::kError) {
      error_max = std::max(error_max, gradient);
    }
  }
  return margin.empty() ? error_max : Median(std::move(margin));
}

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
double GiveToReserve(double missing, GramCache* gram, Start* start) {
  const absl::Span<const double> weights = gram->weights();
  const Support support = SupportOf(*start, weights);
  std::vector<double> sums;
  WeightedRowSum(gram, support.indices, support.totals, &sums);
  std::vector<std::pair<double, size_t>> reserve;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (start->classes[i] == Partition::kReserve) reserve.emplace_back(sums[i], i);
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

void WeightedRowSum(GramCache* gram, absl::Span<const int64_t> indices,
                    absl::Span<const double> factors, std::vector<double>* sums) {
  LETHE_CHECK(indices.size() == factors.size());
  const size_t n = static_cast<size_t>(gram->num_groups());
  sums->assign(n, 0.0);
  // Column blocks keep the sums in the first cache level.
  constexpr size_t kBlock = 1024;
  for (const int64_t index : indices) gram->Row(index);
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t count = std::min(kBlock, n - begin);
    for (size_t k = 0; k < indices.size(); k += kRowsAtOnce) {
      const size_t here = std::min(kRowsAtOnce, indices.size() - k);
      const double* rows[kRowsAtOnce];
      for (size_t r = 0; r < here; ++r) rows[r] = gram->Row(indices[k + r]).data() + begin;
      AddRows(rows, factors.data() + k, here, count, sums->data() + begin);
    }
  }
}

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
  double missing = solution.mass;
  for (size_t i = 0; i < weights.size(); ++i) missing -= weights[i] * start.a[i];
  missing = GiveToMargin(missing, 0.5, weights, &start);
  if (missing > 0.0) missing = GiveToReserve(missing, gram, &start);
  if (missing > 0.0) GiveToMargin(missing, 1.0, weights, &start);
  return start;
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

bool Propose(GramCache* gram, double mass, double ridge, CholeskyFactor* factor, Start* start) {
  const size_t n = static_cast<size_t>(gram->num_groups());
  LETHE_CHECK(start->classes.size() == n);
  const auto find_extra = [&](size_t limit) {
    const Support support = SupportOf(*start, gram->weights());
    std::vector<double> sums;
    WeightedRowSum(gram, support.indices, support.totals, &sums);
    if (start->lambda == 0.0) start->lambda = LambdaOf(*start, sums, ridge);
    return WrongReserves(*start, sums, limit);
  };
  start->lambda = 0.0;
  std::vector<int64_t> extra = find_extra(std::max<size_t>(64, static_cast<size_t>(mass)));
  for (int round = 0; round < kMaxRounds; ++round) {
    std::vector<int64_t> ids;
    for (size_t i = 0, k = 0; i < n; ++i) {
      const bool is_extra = k < extra.size() && extra[k] == static_cast<int64_t>(i);
      if (is_extra) ++k;
      if (is_extra || start->classes[i] != Partition::kReserve) {
        ids.push_back(static_cast<int64_t>(i));
      }
    }
    if (!SolveOn(ids, gram, mass, ridge, factor, start)) return false;
    extra = find_extra(std::max<size_t>(64, ids.size() / 2));
    if (extra.empty()) return true;
  }
  return false;
}

}  // namespace lethe::svdd
