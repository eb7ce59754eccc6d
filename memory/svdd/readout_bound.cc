#include "memory/svdd/readout_bound.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/base/check.h"
#include "memory/svdd/outward.h"

namespace lethe::svdd {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

struct Extremes {
  double low = kUnbounded;
  double high = -kUnbounded;
};

template <typename T>
void Widen(absl::Span<const T> row, std::vector<Extremes>* extremes) {
  for (size_t c = 0; c < row.size(); ++c) {
    (*extremes)[c].low = std::min((*extremes)[c].low, static_cast<double>(row[c]));
    (*extremes)[c].high = std::max((*extremes)[c].high, static_cast<double>(row[c]));
  }
}

}  // namespace

template <typename T>
std::vector<double> ValueRanges(absl::Span<const Partition> classes, const ReadoutValues<T>& values,
                                ValueSet set) {
  const auto dim = static_cast<size_t>(values.dim);
  LETHE_DCHECK(values.gated.size() == classes.size() * dim);
  std::vector<Extremes> extremes(dim);
  for (size_t i = 0; i < classes.size(); ++i) {
    if (set == ValueSet::kSupport && classes[i] == Partition::kReserve) continue;
    Widen(values.gated.subspan(i * dim, dim), &extremes);
  }
  for (size_t begin = 0; begin < values.local.size(); begin += dim) {
    Widen(values.local.subspan(begin, dim), &extremes);
  }
  std::vector<double> ranges;
  for (const Extremes& of : extremes) {
    ranges.push_back(of.low < of.high ? NextAbove(of.high - of.low) : 0.0);
  }
  return ranges;
}

template <typename T>
void AddReadoutBound(absl::Span<const Partition> classes, const ReadoutValues<T>& values,
                     OptimalityBounds* bounds) {
  if (!bounds->partition_proved) return;
  const std::vector<double> ranges = ValueRanges(classes, values, ValueSet::kSupport);
  const double range = ranges.empty() ? 0.0 : *std::max_element(ranges.begin(), ranges.end());
  bounds->readout_bound = ProductUp(range, bounds->weight_ratio_bound);
}

template std::vector<double> ValueRanges(absl::Span<const Partition>, const ReadoutValues<float>&,
                                         ValueSet);
template std::vector<double> ValueRanges(absl::Span<const Partition>, const ReadoutValues<double>&,
                                         ValueSet);
template void AddReadoutBound(absl::Span<const Partition>, const ReadoutValues<float>&,
                              OptimalityBounds*);
template void AddReadoutBound(absl::Span<const Partition>, const ReadoutValues<double>&,
                              OptimalityBounds*);

double ReadoutFactorAt(const OptimalityBounds& bounds, absl::Span<const double> a, double mass,
                       const QueryWeights& weights) {
  LETHE_DCHECK(weights.gated.size() == a.size());
  double square = 0.0;
  double total = weights.local_sum;
  for (size_t i = 0; i < a.size(); ++i) {
    square = SumUp(square, ProductUp(weights.gated[i], weights.gated[i]));
    total += a[i] * weights.gated[i];
  }
  // n + 2 roundings of nonnegative terms, and the weights' own error in numerator and denominator.
  const double rounding = (static_cast<double>(a.size()) + 2.0) * 0x1.0p-52;
  const double low = total * (1.0 - 2.0 * (rounding + weights.weight_error));
  if (!(low > 0.0)) return kUnbounded;
  const double norm = ProductUp(RootUp(square), NextAbove(1.0 + 2.0 * weights.weight_error));
  return QuotientUp(ProductUp(ProductUp(mass, bounds.alpha_norm_bound), norm), NextBelow(low));
}

}  // namespace lethe::svdd
