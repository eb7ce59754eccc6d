#include "memory/svdd/distinct_keys.h"

#include "kernels/base/check.h"

namespace lethe::svdd {

DistinctKeys::DistinctKeys(int64_t dim, absl::Span<const double> keys,
                           absl::Span<const Partition> classes)
    : groups_(dim) {
  groups_.Append(keys);
  LETHE_CHECK(groups_.num_keys() == static_cast<int64_t>(classes.size()));
  rows_.resize(static_cast<size_t>(groups_.num_groups()));
  places_.resize(rows_.size());
  for (size_t row = 0; row < classes.size(); ++row) {
    const auto i = static_cast<size_t>(groups_.GroupOf(static_cast<int64_t>(row)));
    if (rows_[i].empty()) places_[i] = classes[row];
    uniform_ &= places_[i] == classes[row];
    if (classes[row] == Partition::kMargin) places_[i] = Partition::kMargin;
    rows_[i].push_back(row);
  }
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i] == Partition::kMargin) margin_.push_back(i);
  }
}

}  // namespace lethe::svdd
