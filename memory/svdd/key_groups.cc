#include "memory/svdd/key_groups.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/check.h"
#include "kernels/base/wiped.h"

namespace lethe::svdd {
namespace {

size_t At(int64_t index) { return static_cast<size_t>(index); }

bool Below(absl::Span<const double> a, absl::Span<const double> b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

template <typename Vector>
auto Iterator(Vector* values, int64_t index) {
  return values->begin() + static_cast<std::ptrdiff_t>(index);
}

}  // namespace

absl::Span<const double> KeyGroups::Key(int64_t group) const {
  LETHE_DCHECK(group >= 0 && group < num_groups());
  return absl::MakeConstSpan(keys_).subspan(At(group * dim_), At(dim_));
}

size_t KeyGroups::LowerBound(absl::Span<const double> key) const {
  const auto below = [&](int64_t group, absl::Span<const double> value) {
    return Below(Key(group), value);
  };
  return At(std::lower_bound(sorted_.begin(), sorted_.end(), key, below) - sorted_.begin());
}

void KeyGroups::Append(absl::Span<const double> keys) {
  LETHE_CHECK(keys.size() % At(dim_) == 0);
  for (size_t begin = 0; begin < keys.size(); begin += At(dim_)) {
    const absl::Span<const double> key = keys.subspan(begin, At(dim_));
    const size_t place = LowerBound(key);
    if (place < sorted_.size()) {
      const absl::Span<const double> found = Key(sorted_[place]);
      // -0 compares equal to +0, here and in LowerBound.
      if (std::equal(key.begin(), key.end(), found.begin())) {
        weights_[At(sorted_[place])] += 1.0;
        group_of_rank_.push_back(sorted_[place]);
        continue;
      }
    }
    const int64_t group = AddGroup(key);
    sorted_.insert(Iterator(&sorted_, static_cast<int64_t>(place)), group);
    weights_[At(group)] = 1.0;
    group_of_rank_.push_back(group);
  }
}

int64_t KeyGroups::AddGroup(absl::Span<const double> key) {
  for (const double component : key) keys_.push_back(component + 0.0);
  weights_.push_back(0.0);
  first_ranks_.push_back(num_keys());
  return num_groups() - 1;
}

WipedVector<int64_t> KeyGroups::Find(absl::Span<const double> keys,
                                     std::vector<NewKey>* added) const {
  const size_t count = keys.size() / At(dim_);
  const auto key_at = [&](size_t i) { return keys.subspan(i * At(dim_), At(dim_)); };
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return Below(key_at(a), key_at(b)); });
  WipedVector<int64_t> found(count);
  for (size_t k = 0; k < count; ++k) {
    const absl::Span<const double> key = key_at(order[k]);
    int64_t& group = found[order[k]];
    if (k > 0 && !Below(key_at(order[k - 1]), key)) {
      group = found[order[k - 1]];
      continue;
    }
    const size_t place = LowerBound(key);
    if (place < sorted_.size() && !Below(key, Key(sorted_[place]))) {
      group = sorted_[place];
    } else {
      group = num_groups() + static_cast<int64_t>(added->size());
      added->push_back({key, place});
    }
  }
  return found;
}

std::vector<int64_t> KeyGroups::SetEdited(const KeyGroups& before, const KeyEdit& edit) {
  LETHE_CHECK(num_keys() == 0 && dim_ == before.dim_ && edit.keys.size() % At(dim_) == 0);
  std::vector<NewKey> added;
  const WipedVector<int64_t> found = before.Find(edit.keys, &added);
  // By group before, then by new key.
  WipedVector<int64_t> group_now(At(before.num_groups()) + added.size(), KeyEdit::kNone);
  group_of_rank_.reserve(edit.kept.size());
  keys_.reserve(before.keys_.size() + edit.keys.size());
  std::vector<int64_t> group_before;
  size_t next = 0;
  for (const int64_t rank : edit.kept) {
    LETHE_CHECK(rank < before.num_keys() && (rank >= 0 || next < found.size()));
    const int64_t id = rank >= 0 ? before.GroupOf(rank) : found[next++];
    int64_t& group = group_now[At(id)];
    if (group < 0) {
      const bool is_old = id < before.num_groups();
      group = AddGroup(is_old ? before.Key(id) : added[At(id - before.num_groups())].key);
      group_before.push_back(is_old ? id : KeyEdit::kNone);
    }
    weights_[At(group)] += 1.0;
    group_of_rank_.push_back(group);
  }
  sorted_.reserve(At(num_groups()));
  const size_t old_places = before.sorted_.size();
  for (size_t place = 0, k = 0; place <= old_places; ++place) {
    for (; k < added.size() && added[k].place == place; ++k) {
      sorted_.push_back(group_now[At(before.num_groups()) + k]);
    }
    if (place == old_places) break;
    const int64_t group = group_now[At(before.sorted_[place])];
    if (group >= 0) sorted_.push_back(group);
  }
  return group_before;
}

void KeyGroups::DropGroupsFrom(int64_t group) {
  // The order of the groups that go says something about their keys.
  const auto kept =
      std::remove_if(sorted_.begin(), sorted_.end(), [group](int64_t g) { return g >= group; });
  WipeFrom(&sorted_, At(kept - sorted_.begin()));
  WipeFrom(&keys_, At(group * dim_));
  WipeFrom(&first_ranks_, At(group));
  WipeFrom(&weights_, At(group));
}

void KeyGroups::Truncate(int64_t num_keys_kept) {
  LETHE_CHECK(num_keys_kept >= 0 && num_keys_kept <= num_keys());
  for (int64_t rank = num_keys_kept; rank < num_keys(); ++rank) {
    weights_[At(GroupOf(rank))] -= 1.0;
  }
  WipeFrom(&group_of_rank_, At(num_keys_kept));
  const auto first_empty =
      std::lower_bound(first_ranks_.begin(), first_ranks_.end(), num_keys_kept);
  DropGroupsFrom(first_empty - first_ranks_.begin());
}

bool KeyGroups::Erase(int64_t rank) {
  LETHE_CHECK(rank >= 0 && rank < num_keys());
  const int64_t group = GroupOf(rank);
  std::rotate(Iterator(&group_of_rank_, rank), Iterator(&group_of_rank_, rank + 1),
              group_of_rank_.end());
  WipeFrom(&group_of_rank_, At(num_keys() - 1));
  const bool was_first = FirstRank(group) == rank;
  for (int64_t& first : first_ranks_) first -= first > rank ? 1 : 0;
  weights_[At(group)] -= 1.0;
  if (weights_[At(group)] > 0.0) {
    if (was_first) {
      const auto next = std::find(Iterator(&group_of_rank_, rank), group_of_rank_.end(), group);
      first_ranks_[At(group)] = next - group_of_rank_.begin();
    }
    return false;
  }
  const auto place = std::find(sorted_.begin(), sorted_.end(), group);
  std::rotate(place, place + 1, sorted_.end());
  WipeFrom(&sorted_, sorted_.size() - 1);
  std::fill_n(Iterator(&keys_, group * dim_), dim_, 0.0);
  first_ranks_[At(group)] = -1;
  ++num_holes_;
  return true;
}

std::vector<double> KeyGroups::AllKeys() const {
  std::vector<double> all;
  all.reserve(group_of_rank_.size() * At(dim_));
  for (const int64_t group : group_of_rank_) {
    const absl::Span<const double> key = Key(group);
    all.insert(all.end(), key.begin(), key.end());
  }
  return all;
}

size_t KeyGroups::state_bytes() const {
  return (keys_.capacity() + weights_.capacity()) * sizeof(double) +
         (first_ranks_.capacity() + sorted_.capacity() + group_of_rank_.capacity()) *
             sizeof(int64_t);
}

}  // namespace lethe::svdd
