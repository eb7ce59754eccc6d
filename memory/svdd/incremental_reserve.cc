// IncrementalSolver: keys that come and go without a solve, and the margins that allow it.
#include <algorithm>
#include <cstddef>
#include <limits>

#include "memory/svdd/canon.h"
#include "memory/svdd/incremental.h"

namespace lethe::svdd {
namespace {

size_t At(int64_t index) { return static_cast<size_t>(index); }

}  // namespace

bool IncrementalSolver::JoinsReserve() {
  const int64_t n = gram_.num_keys();
  if (!MarginsHold(n)) return false;
  const int64_t group = gram_.groups().GroupOf(n - 1);
  if (held_[At(group)] != 0.0) return false;  // its equals are in S or E
  const double margin = ReserveMargin(MakeMarginScale(), At(group));
  if (margin < 2.0 * MarginThreshold(params_, n)) return false;
  solution_.num_keys = n;
  solution_.classes.push_back(Partition::kReserve);
  solution_.a.push_back(0.0);
  solution_.smallest_margin = std::min(solution_.smallest_margin, margin);
  ++counters_.solves;
  ++counters_.accepted;
  return true;
}

IncrementalSolver::MarginScale IncrementalSolver::MakeMarginScale() const {
  MarginScale scale;
  double margin_copies = 0.0;
  for (const Partition place : solution_.classes) {
    margin_copies += place == Partition::kMargin ? 1.0 : 0.0;
  }
  scale.error = GradientError(sums_.Error(HeldTotals(HeldGroups())), solution_.mass, margin_copies);
  scale.lambda = solution_.mass * (1.0 - solution_.rho);
  scale.has_margin = margin_copies > 0.0;
  return scale;
}

double IncrementalSolver::ReserveMargin(const MarginScale& scale, size_t group) const {
  const double gap = 2.0 * sums_.Value(group) - scale.lambda - scale.error;
  return scale.has_margin ? gap : 0.5 * gap;  // as canon.h: half the gap
}

double IncrementalSolver::ProvedMargin() const {
  const MarginScale scale = MakeMarginScale();
  double smallest = std::numeric_limits<double>::infinity();
  for (int64_t rank = 0; rank < solution_.num_keys; ++rank) {
    const size_t group = At(gram_.groups().GroupOf(rank));
    const double a = solution_.a[At(rank)];
    switch (solution_.classes[At(rank)]) {
      case Partition::kReserve:
        smallest = std::min(smallest, ReserveMargin(scale, group));
        break;
      case Partition::kMargin:
        smallest = std::min({smallest, a - 0x1p-53, 1.0 - a - 0x1p-53});
        break;
      case Partition::kError:
        // Without a margin set lambda is the largest gradient of E.
        if (scale.has_margin) {
          const double gradient = 2.0 * (sums_.Value(group) + params_.ridge);
          smallest = std::min(smallest, scale.lambda - gradient - scale.error);
        }
        break;
    }
  }
  return smallest;
}

void IncrementalSolver::LeaveReserve(absl::Span<const int64_t> ranks) {
  Erase(ranks);
  for (size_t k = ranks.size(); k-- > 0;) {
    solution_.classes.erase(solution_.classes.begin() + ranks[k]);
    solution_.a.erase(solution_.a.begin() + ranks[k]);
  }
  solution_.num_keys = gram_.num_keys();
  // That of a key that left may have been the smallest.
  solution_.smallest_margin =
      std::max(ProvedMargin(), 2.0 * MarginThreshold(params_, solution_.num_keys));
  ++counters_.solves;
  ++counters_.accepted;
}

}  // namespace lethe::svdd
