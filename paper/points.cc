#include "paper/points.h"

#include <algorithm>

namespace lethe::paper {

Points Points::Head(int64_t most) const {
  Points head = *this;
  head.x.resize(static_cast<size_t>(std::min(most, count()) * dim));
  return head;
}

Points Points::At(absl::Span<const int64_t> ranks) const {
  Points some{dim, {}};
  for (const int64_t rank : ranks) some.Add(row(rank));
  return some;
}

Points Points::Without(absl::Span<const int64_t> ranks) const {
  return At(OtherRanks(count(), ranks));
}

Points Points::Moved(double scale, absl::Span<const double> noise) const {
  Points moved = *this;
  for (size_t i = 0; i < moved.x.size(); ++i) moved.x[i] += scale * noise[i];
  return moved;
}

std::vector<int64_t> OtherRanks(int64_t n, absl::Span<const int64_t> ranks) {
  std::vector<int64_t> others;
  for (int64_t rank = 0; rank < n; ++rank) {
    if (!std::binary_search(ranks.begin(), ranks.end(), rank)) others.push_back(rank);
  }
  return others;
}

double SquaredDistance(absl::Span<const double> a, absl::Span<const double> b) {
  double square = 0.0;
  for (size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
  return square;
}

}  // namespace lethe::paper
