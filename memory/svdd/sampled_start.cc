#include "memory/svdd/sampled_start.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"

#include "kernels/base/check.h"
#include "memory/svdd/cholesky.h"
#include "memory/svdd/propose.h"
#include "memory/svdd/weighted_row_sum.h"

namespace lethe::svdd {
namespace {

constexpr int64_t kLeast = 1024;
constexpr int64_t kStride = 16;

// The mass to whole keys by rising sum, the last one in part.
Start Outermost(absl::Span<const double> weights, const std::vector<double>& sums, double mass) {
  std::vector<std::pair<double, size_t>> order;
  order.reserve(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) order.emplace_back(sums[i], i);
  std::sort(order.begin(), order.end());
  Start start;
  start.classes.assign(sums.size(), Partition::kReserve);
  start.a.assign(sums.size(), 0.0);
  for (const auto& [sum, i] : order) {
    if (!(mass > 0.0)) break;
    const bool whole = mass >= weights[i];
    start.classes[i] = whole ? Partition::kError : Partition::kMargin;
    start.a[i] = whole ? 1.0 : mass / weights[i];
    mass = whole ? mass - weights[i] : 0.0;
  }
  return start;
}

}  // namespace

Start SampledStart(GramCache* gram, double mass, double ridge) {
  const KeyGroups& groups = gram->groups();
  LETHE_CHECK(groups.num_holes() == 0);
  if (groups.num_groups() < kLeast) return ColdStart(groups.weights(), mass);
  GramCache sample(gram->sigma(), groups.dim());
  for (int64_t group = 0; group < groups.num_groups(); group += kStride) {
    const double copies = groups.weights()[static_cast<size_t>(group)];
    for (double copy = 0.0; copy < copies; ++copy) sample.Append(groups.Key(group));
  }
  const auto num_keys = static_cast<double>(sample.num_keys());
  const double sample_mass =
      std::max(1.0, mass * num_keys / static_cast<double>(groups.num_keys()));
  if (!(num_keys > sample_mass)) return ColdStart(groups.weights(), mass);
  Start inner = SampledStart(&sample, sample_mass, ridge);
  CholeskyFactor factor(ridge);
  // One that did not settle is feasible all the same.
  Propose(&sample, sample_mass, ridge, &factor, &inner, GramCache::kPassBytes);
  Support support = SupportOf(inner, sample.weights());
  for (int64_t& index : support.indices) index *= kStride;
  std::vector<double> sums;
  WeightedRowSum(gram, support.indices, support.totals, &sums, 0);
  return Outermost(groups.weights(), sums, mass);
}

}  // namespace lethe::svdd
