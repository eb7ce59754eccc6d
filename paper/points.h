// Points: a list of keys of one dimension, as an experiment handles it.
//
// Equation:  none.
// Shapes:    x: [count()][dim] f64 row-major.
// Units:     none.
// Requires:  x.size() a multiple of dim; ranks in range, Without's ascending.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   compatible.
#ifndef LETHE_PAPER_POINTS_H_
#define LETHE_PAPER_POINTS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lethe::paper {

struct Points {
  int64_t dim = 1;
  std::vector<double> x;

  int64_t count() const { return static_cast<int64_t>(x.size()) / dim; }
  absl::Span<const double> row(int64_t rank) const {
    return absl::MakeConstSpan(x).subspan(static_cast<size_t>(rank * dim),
                                          static_cast<size_t>(dim));
  }
  void Add(absl::Span<const double> row) { x.insert(x.end(), row.begin(), row.end()); }

  // The first `most` of them.
  Points Head(int64_t most) const;
  // Those at `ranks`, in that order.
  Points At(absl::Span<const int64_t> ranks) const;
  Points Without(absl::Span<const int64_t> ranks) const;
  // A copy moved by scale times noise, [count()][dim].
  Points Moved(double scale, absl::Span<const double> noise) const;
};

// The ranks below n that are not in `ranks` (ascending).
std::vector<int64_t> OtherRanks(int64_t n, absl::Span<const int64_t> ranks);

double SquaredDistance(absl::Span<const double> a, absl::Span<const double> b);

}  // namespace lethe::paper

#endif  // LETHE_PAPER_POINTS_H_
