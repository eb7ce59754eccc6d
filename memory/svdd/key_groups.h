// KeyGroups: an ordered list of keys, held as its distinct keys and their multiplicities.
//
// Equation:  keys equal in every component (-0 = +0) are one group; groups are numbered by their
//            first rank; weight = number of copies.
// Shapes:    keys [count][dim] f64 row-major; distinct_keys [num_groups][dim].
// Units:     none.
// Requires:  finite components; ranks below num_keys(), groups below num_groups() (LETHE_DCHECK). No
//            Truncate after Erase.
// Rejects:   none.
// Effects:   Truncate and Erase overwrite what they drop: the components of a key whose last copy
//            goes, its numbers and places. Components are stored with -0 as +0. Erase leaves holes,
//            groups of weight 0 whose key is 0 and whose first rank is -1, and groups out of the
//            order of their first ranks; SetEdited of the result has neither.
// Numerics:  exact; without Erase everything is a function of the ordered list alone, not of how it
//            came about.
//            Cost of a new key O(dim log num_groups + num_groups) (a binary search in an index of
//            sorted keys: no hash, so no input makes it slow), of SetEdited O(num_keys + num_groups
//            dim + new keys dim log num_groups); memory O(num_groups dim + num_keys).
// Threads:   compatible.
#ifndef LETHE_MEMORY_SVDD_KEY_GROUPS_H_
#define LETHE_MEMORY_SVDD_KEY_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "kernels/base/wiped.h"

namespace lethe::svdd {

// A key list made from another one.
struct KeyEdit {
  static constexpr int64_t kNone = -1;
  std::vector<int64_t> kept;  // per rank: the rank before with this key, or kNone: the next of keys
  // Per rank: the rank before whose place in the solution a proposal starts from, or kNone.
  std::vector<int64_t> heir_of;
  WipedVector<double> keys;  // [number of kNone in kept][dim]
};

class KeyGroups {
 public:
  explicit KeyGroups(int64_t dim) : dim_(dim) {}

  void Append(absl::Span<const double> keys);
  // Drops the ranks from num_keys on. The groups that go are the last ones.
  void Truncate(int64_t num_keys);
  // Removes one key; later ranks move down, groups keep their numbers. True when it was the last
  // copy: the group is a hole then.
  bool Erase(int64_t rank);
  int64_t num_holes() const { return num_holes_; }
  // Becomes the groups of the list that `edit` makes of `before`; this one is empty. Returns, per
  // group, the group of `before` with the same key, or kNone.
  std::vector<int64_t> SetEdited(const KeyGroups& before, const KeyEdit& edit);

  int64_t dim() const { return dim_; }
  int64_t num_keys() const { return static_cast<int64_t>(group_of_rank_.size()); }
  int64_t num_groups() const { return static_cast<int64_t>(weights_.size()); }
  int64_t GroupOf(int64_t rank) const { return group_of_rank_[static_cast<size_t>(rank)]; }
  int64_t FirstRank(int64_t group) const { return first_ranks_[static_cast<size_t>(group)]; }
  // Multiplicities, as doubles because they only enter sums and products.
  absl::Span<const double> weights() const { return weights_; }
  absl::Span<const double> distinct_keys() const { return keys_; }
  absl::Span<const double> Key(int64_t group) const;

  // The whole list in rank order.
  std::vector<double> AllKeys() const;
  // values[group] for every rank.
  template <typename T>
  std::vector<T> ToRanks(absl::Span<const T> values) const {
    std::vector<T> of_ranks;
    of_ranks.reserve(group_of_rank_.size());
    for (const int64_t group : group_of_rank_) {
      of_ranks.push_back(values[static_cast<size_t>(group)]);
    }
    return of_ranks;
  }

  size_t state_bytes() const;

 private:
  // A key of an edit that no key before equals, and its place in sorted_ before.
  struct NewKey {
    absl::Span<const double> key;
    size_t place = 0;
  };
  // The first place in sorted_ whose key is not below `key`.
  size_t LowerBound(absl::Span<const double> key) const;
  // The group of every key, num_groups() + k for (*added)[k]; added: equal ones once, sorted.
  WipedVector<int64_t> Find(absl::Span<const double> keys, std::vector<NewKey>* added) const;
  // A group of one key without copies, which first stands at the next rank.
  int64_t AddGroup(absl::Span<const double> key);
  void DropGroupsFrom(int64_t group);

  int64_t dim_;
  WipedVector<double> keys_;            // [num_groups][dim]
  std::vector<double> weights_;         // [num_groups]
  std::vector<int64_t> first_ranks_;    // [num_groups]
  std::vector<int64_t> sorted_;         // groups by lexicographic order of their keys
  std::vector<int64_t> group_of_rank_;  // [num_keys]
  int64_t num_holes_ = 0;
};

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_KEY_GROUPS_H_
