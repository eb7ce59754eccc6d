// DistinctKeys: a reported partition over distinct keys, for the proof.
//
// Equation:  keys equal in every component (-0 = +0) are one, in the order of their first ranks
//            (key_groups.h).
// Shapes:    keys [n][dim]; classes [n]. places, rows: one per distinct key.
// Units:     none.
// Requires:  finite keys; sizes that match (LETHE_CHECK).
// Rejects:   none.
// Effects:   holds a copy of the distinct keys.
// Numerics:  exact.
// Threads:   safe when const.
#ifndef LETHE_MEMORY_SVDD_DISTINCT_KEYS_H_
#define LETHE_MEMORY_SVDD_DISTINCT_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "memory/svdd/key_groups.h"
#include "memory/svdd/problem.h"

namespace lethe::svdd {

class DistinctKeys {
 public:
  DistinctKeys(int64_t dim, absl::Span<const double> keys, absl::Span<const Partition> classes);

  size_t size() const { return rows_.size(); }
  absl::Span<const double> key(size_t i) const { return groups_.Key(static_cast<int64_t>(i)); }
  const std::vector<size_t>& rows(size_t i) const { return rows_[i]; }
  double copies(size_t i) const { return static_cast<double>(rows_[i].size()); }
  // Of the first copy; margin where any copy is.
  Partition place(size_t i) const { return places_[i]; }
  // All copies of each key are in one class, as they are at the optimum.
  bool uniform() const { return uniform_; }
  // The distinct keys with a copy in the margin set, ascending.
  const std::vector<size_t>& margin() const { return margin_; }

 private:
  KeyGroups groups_;
  std::vector<std::vector<size_t>> rows_;
  std::vector<Partition> places_;
  std::vector<size_t> margin_;
  bool uniform_ = true;
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_DISTINCT_KEYS_H_
