// Goal: KeyGroups is a function of the ordered key list alone, and the Gram rows follow its
// numbering.
// Method: random appends, truncations and erasures of lists with many copies against groups made
// afresh and against plain loops.
#include <cmath>
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "memory/svdd/gram_cache.h"
#include "memory/svdd/key_groups.h"
#include "tests/memory/svdd_testing.h"

namespace lethe::svdd {
namespace {

constexpr int64_t kDim = 3;

absl::Span<const double> KeyAt(const std::vector<double>& keys, int64_t rank) {
  return absl::MakeConstSpan(keys).subspan(static_cast<size_t>(rank * kDim), kDim);
}

void ExpectGroupsOf(const std::vector<double>& list, const KeyGroups& groups) {
  const auto n = static_cast<int64_t>(list.size()) / kDim;
  ASSERT_EQ(groups.num_keys(), n);
  int64_t expected_groups = 0;
  for (int64_t i = 0; i < n; ++i) {
    int64_t first = i;
    for (int64_t j = i; j-- > 0;) {
      if (KeyAt(list, j) == KeyAt(list, i)) first = j;
    }
    if (first == i) {
      ASSERT_EQ(groups.GroupOf(i), expected_groups) << "groups are numbered by first rank";
      ASSERT_EQ(groups.FirstRank(expected_groups), i);
      ++expected_groups;
    }
    ASSERT_EQ(groups.GroupOf(i), groups.GroupOf(first));
    ASSERT_EQ(groups.Key(groups.GroupOf(i)), KeyAt(list, i));
  }
  ASSERT_EQ(groups.num_groups(), expected_groups);
  std::vector<double> counts(static_cast<size_t>(expected_groups), 0.0);
  for (int64_t i = 0; i < n; ++i) counts[static_cast<size_t>(groups.GroupOf(i))] += 1.0;
  ASSERT_EQ(groups.weights(), absl::MakeConstSpan(counts));
  for (const double component : groups.distinct_keys()) {
    ASSERT_FALSE(component == 0.0 && std::signbit(component)) << "a negative zero was kept";
  }
  ASSERT_EQ(groups.AllKeys(), list);
}

// The same list without the holes of Erase.
KeyGroups Compacted(const KeyGroups& groups) {
  KeyEdit edit;
  for (int64_t rank = 0; rank < groups.num_keys(); ++rank) edit.kept.push_back(rank);
  KeyGroups compact(kDim);
  compact.SetEdited(groups, edit);
  return compact;
}

TEST(KeyGroupsTest, EqualsTheGroupsOfItsList) {
  std::mt19937_64 random(1);
  for (const KeyKind kind : {KeyKind::kFewKeys, KeyKind::kGrid, KeyKind::kGaussian}) {
    SCOPED_TRACE(KindName(kind));
    KeyGroups groups(kDim);
    std::vector<double> list;
    for (int operation = 0; operation < 300; ++operation) {
      const auto n = static_cast<int64_t>(list.size()) / kDim;
      const uint64_t what = random() % 8;
      if (what < 2 || n == 0) {
        const std::vector<double> more =
            MakeKeys(kind, 1 + static_cast<int64_t>(random() % 20), kDim, &random);
        groups.Append(more);
        list.insert(list.end(), more.begin(), more.end());
        if (n > 0) {  // and copies of old ones
          const auto from = static_cast<int64_t>(random() % static_cast<uint64_t>(n));
          const std::vector<double> old(KeyAt(list, from).begin(), KeyAt(list, from).end());
          groups.Append(old);
          list.insert(list.end(), old.begin(), old.end());
        }
      } else if (what == 2) {
        groups = Compacted(groups);
        const auto kept = n - static_cast<int64_t>(random() % static_cast<uint64_t>(n / 3 + 1));
        groups.Truncate(kept);
        list.resize(static_cast<size_t>(kept * kDim));
      } else {
        const auto rank = static_cast<int64_t>(random() % static_cast<uint64_t>(n));
        const bool last_copy = groups.weights()[static_cast<size_t>(groups.GroupOf(rank))] == 1.0;
        const int64_t group = groups.GroupOf(rank);
        EXPECT_EQ(groups.Erase(rank), last_copy);
        if (last_copy) {
          EXPECT_THAT(groups.Key(group), testing::Each(0.0)) << "a key that went";
        }
        list.erase(list.begin() + rank * kDim, list.begin() + (rank + 1) * kDim);
      }
      EXPECT_EQ(groups.AllKeys(), list);
      ExpectGroupsOf(list, Compacted(groups));
      if (HasFatalFailure()) return;
    }
    groups = Compacted(groups);
    groups.Truncate(0);
    EXPECT_EQ(groups.num_groups(), 0);
  }
}

// Some keys of the list go, some stay, some new ones (copies of old and of new ones among them) come.
KeyEdit RandomEdit(const std::vector<double>& list, const std::vector<double>& pool,
                   std::mt19937_64* random, std::vector<double>* edited) {
  KeyEdit edit;
  const auto add = [&](absl::Span<const double> key) {
    edited->insert(edited->end(), key.begin(), key.end());
  };
  for (int64_t rank = 0; rank < static_cast<int64_t>(list.size()) / kDim; ++rank) {
    const uint64_t what = (*random)() % 5;
    if (what == 0) continue;
    if (what == 1) {
      const auto& from = (*random)() % 2 == 0 ? pool : list;
      const uint64_t count = from.size() / static_cast<size_t>(kDim);
      const absl::Span<const double> key = KeyAt(from, static_cast<int64_t>((*random)() % count));
      edit.keys.insert(edit.keys.end(), key.begin(), key.end());
      add(key);
    } else {
      add(KeyAt(list, rank));
    }
    edit.kept.push_back(what == 1 ? KeyEdit::kNone : rank);
    edit.heir_of.push_back(rank);
  }
  return edit;
}

TEST(KeyGroupsTest, EditsEqualTheGroupsOfTheEditedList) {
  std::mt19937_64 random(4);
  for (const KeyKind kind : {KeyKind::kFewKeys, KeyKind::kGrid, KeyKind::kGaussian}) {
    SCOPED_TRACE(KindName(kind));
    std::vector<double> list = MakeKeys(kind, 200, kDim, &random);
    auto gram = std::make_unique<GramCache>(0.9, kDim);
    gram->Append(list);
    for (int round = 0; round < 8; ++round) {
      for (int64_t i = 0; i < gram->num_groups(); i += 3) gram->Row(i);
      std::vector<double> edited;
      const KeyEdit edit = RandomEdit(list, MakeKeys(kind, 20, kDim, &random), &random, &edited);
      auto after = std::make_unique<GramCache>(0.9, kDim);
      after->SetEdited(*gram, edit);
      ExpectGroupsOf(edited, after->groups());
      if (HasFatalFailure()) return;
      GramCache fresh(0.9, kDim);
      fresh.Append(edited);
      for (int64_t i = 0; i < fresh.num_groups(); ++i) ASSERT_EQ(after->Row(i), fresh.Row(i));
      list = edited;
      // The next one appends, so its groups must be found.
      const std::vector<double> more = MakeKeys(kind, 30, kDim, &random);
      after->Append(more);
      list.insert(list.end(), more.begin(), more.end());
      ExpectGroupsOf(list, after->groups());
      gram = std::move(after);
    }
  }
}

TEST(KeyGroupsTest, EditsEvaluateOnlyWhatIsNew) {
  std::mt19937_64 random(5);
  const std::vector<double> list = MakeKeys(KeyKind::kGaussian, 100, kDim, &random);
  const std::vector<double> key = MakeKeys(KeyKind::kGaussian, 1, kDim, &random);
  GramCache gram(0.9, kDim);
  gram.Append(list);
  for (int64_t i = 10; i < 20; ++i) gram.Row(i);
  KeyEdit edit;  // 12 goes, 50 is new
  for (int64_t rank = 0; rank < 100; ++rank) {
    if (rank == 12) continue;
    edit.kept.push_back(rank == 50 ? KeyEdit::kNone : rank);
    edit.heir_of.push_back(rank);
  }
  edit.keys.assign(key.begin(), key.end());
  GramCache after(0.9, kDim);
  after.SetEdited(gram, edit);
  EXPECT_EQ(after.num_evaluations(), 9);
  for (int64_t i = 10; i < 19; ++i) after.Row(i);
  EXPECT_EQ(after.num_evaluations(), 9);
  after.Row(0);
  EXPECT_EQ(after.num_evaluations(), 9 + 99);
}

TEST(KeyGroupsTest, GramRowsFollowTheGroups) {
  std::mt19937_64 random(2);
  const std::vector<double> pool = MakeKeys(KeyKind::kFewKeys, 400, kDim, &random);
  GramCache gram(0.9, kDim);
  int64_t next = 0;
  for (int operation = 0; operation < 400; ++operation) {
    const uint64_t what = random() % 9;
    if (gram.num_keys() < 5 || (what < 4 && next < 400)) {
      gram.Append(KeyAt(pool, next++ % 400));
    } else if (what < 8) {
      gram.Erase(static_cast<int64_t>(random() % static_cast<uint64_t>(gram.num_keys())));
    } else {
      gram.Compact();
      gram.Truncate(gram.num_keys() - static_cast<int64_t>(random() % 4));
    }
    // Some rows are asked for at every size, so that most are only partly there.
    for (int i = 0; i < 3; ++i) {
      gram.Row(static_cast<int64_t>(random() % static_cast<uint64_t>(gram.num_groups())));
    }
    if (operation % 5 != 0) continue;
    GramCache fresh(0.9, kDim);
    fresh.Append(gram.groups().AllKeys());
    GramCache without_rows(0.9, kDim);
    without_rows.CopyKeys(gram);
    GramCache compact(gram);
    const std::vector<int64_t> before = compact.Compact();
    without_rows.Compact();
    ASSERT_EQ(compact.num_groups(), fresh.num_groups());
    for (int64_t i = 0; i < compact.num_groups(); ++i) {
      ASSERT_EQ(compact.Row(i), fresh.Row(i)) << "row " << i << " after operation " << operation;
      ASSERT_EQ(compact.Row(i), without_rows.Row(i));
      ASSERT_EQ(gram.groups().Key(before[static_cast<size_t>(i)]), compact.groups().Key(i));
    }
    if (operation % 25 == 0) gram.KeepOnly({});
  }
}

TEST(KeyGroupsTest, RowsBetweenSolvesStayWithinTheirBudget) {
  std::mt19937_64 random(3);
  GramCache gram(1.0, kDim);
  gram.Append(MakeKeys(KeyKind::kGaussian, 300, kDim, &random));
  std::vector<int64_t> all;
  for (int64_t i = 0; i < gram.num_groups(); ++i) {
    gram.Row(i);
    all.push_back(i);
  }
  const size_t row_bytes = static_cast<size_t>(gram.num_groups()) * sizeof(double);
  const size_t full = gram.state_bytes();
  EXPECT_GE(full, 300 * row_bytes);
  gram.KeepOnly(all, 100 * row_bytes);
  EXPECT_LE(gram.state_bytes(), full - 130 * row_bytes) << "100 rows and the spare ones stay";
  const int64_t evaluations = gram.num_evaluations();
  gram.Row(99);
  EXPECT_EQ(gram.num_evaluations(), evaluations);
  gram.Row(100);
  EXPECT_EQ(gram.num_evaluations(), evaluations + 300);
}

}  // namespace
}  // namespace lethe::svdd
