// Goal: the bookkeeping of retained inputs survives removals: ids stay, ranks close up, derived tokens
// are marked, unused labels go.
// Method: small lists, checked by hand.

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "server/session/inputs.h"

namespace lethe {
namespace {

Inputs Sample() {
  Inputs inputs;
  inputs.Append(1, 10, InputKind::kPrompt, "a");
  inputs.Append(2, 11, InputKind::kPrompt, "");
  inputs.Append(3, 12, InputKind::kGenerated, "");
  inputs.Append(4, 13, InputKind::kAppended, "b");
  inputs.Append(5, 14, InputKind::kGenerated, "b");
  return inputs;
}

std::vector<uint64_t> Ids(const Inputs& inputs) {
  std::vector<uint64_t> ids;
  for (int64_t rank = 0; rank < inputs.size(); ++rank) ids.push_back(inputs.at(rank).token_id);
  return ids;
}

TEST(InputsTest, RemoveKeepsIdsAndClosesRanks) {
  Inputs inputs = Sample();
  inputs.Remove(std::vector<int64_t>{1, 3});
  EXPECT_EQ(Ids(inputs), (std::vector<uint64_t>{1, 3, 5}));
  EXPECT_EQ(inputs.FindRank(3), 1);
  EXPECT_EQ(inputs.FindRank(2), -1);
  EXPECT_EQ(inputs.at(1).vocab_id, 12);
  EXPECT_EQ(inputs.subject(0), "a");
  EXPECT_EQ(inputs.subject(2), "b");
}

TEST(InputsTest, GeneratedInputsBehindARemovedOneAreMarked) {
  Inputs inputs = Sample();
  inputs.Remove(std::vector<int64_t>{3});
  EXPECT_FALSE(inputs.at(2).derived_from_forgotten);
  EXPECT_TRUE(inputs.at(3).derived_from_forgotten);
  EXPECT_TRUE(inputs.any_derived_from_forgotten());
}

TEST(InputsTest, WhatIsGeneratedAfterADerivedInputIsDerived) {
  Inputs inputs = Sample();
  inputs.Append(6, 1, InputKind::kGenerated, "");
  EXPECT_FALSE(inputs.at(5).derived_from_forgotten);
  inputs.Remove(std::vector<int64_t>{0});
  inputs.Append(7, 1, InputKind::kGenerated, "");
  EXPECT_TRUE(inputs.at(inputs.size() - 1).derived_from_forgotten);
  inputs.Append(8, 1, InputKind::kPrompt, "");
  EXPECT_FALSE(inputs.at(inputs.size() - 1).derived_from_forgotten);
  // Once every derived input is gone, new ones are no longer derived.
  std::vector<int64_t> derived;
  for (int64_t rank = 0; rank < inputs.size(); ++rank) {
    if (inputs.at(rank).derived_from_forgotten) derived.push_back(rank);
  }
  inputs.Remove(derived);
  EXPECT_FALSE(inputs.any_derived_from_forgotten());
}

TEST(InputsTest, RangesAreHalfOpen) {
  const Inputs inputs = Sample();
  using Ranks = std::pair<int64_t, int64_t>;
  EXPECT_EQ(inputs.RanksOf({0, 1}), Ranks(0, 0));
  EXPECT_EQ(inputs.RanksOf({1, 2}), Ranks(0, 1));
  EXPECT_EQ(inputs.RanksOf({5, 6}), Ranks(4, 5));
  EXPECT_EQ(inputs.RanksOf({6, 9}), Ranks(5, 5));
  EXPECT_EQ(inputs.RanksOf({0, UINT64_MAX}), Ranks(0, 5));
}

TEST(InputsTest, SubjectsAreFoundUntilTheirLastInputGoes) {
  Inputs inputs = Sample();
  EXPECT_EQ(inputs.RanksOfSubject("b"), (std::vector<int64_t>{3, 4}));
  EXPECT_TRUE(inputs.RanksOfSubject("c").empty());
  inputs.Remove(std::vector<int64_t>{0});
  EXPECT_TRUE(inputs.RanksOfSubject("a").empty());
  EXPECT_EQ(inputs.RanksOfSubject("b"), (std::vector<int64_t>{2, 3}));
}

TEST(InputsTest, GapsListWhatIsNoLongerRetained) {
  Inputs inputs = Sample();
  EXPECT_TRUE(inputs.Gaps(6).empty());
  inputs.Remove(std::vector<int64_t>{0, 2, 3});
  EXPECT_EQ(inputs.Gaps(7), (std::vector<TokenIdRange>{{1, 2}, {3, 5}, {6, 7}}));
}

TEST(InputsTest, RemovingEverythingLeavesNothing) {
  Inputs inputs = Sample();
  inputs.Remove(std::vector<int64_t>{0, 1, 2, 3, 4});
  EXPECT_EQ(inputs.size(), 0);
  EXPECT_FALSE(inputs.any_derived_from_forgotten());
  EXPECT_EQ(inputs.Gaps(6), (std::vector<TokenIdRange>{{1, 6}}));
}

TEST(InputsTest, TruncateDropsTheTail) {
  Inputs inputs = Sample();
  inputs.Truncate(2);
  EXPECT_EQ(Ids(inputs), (std::vector<uint64_t>{1, 2}));
  EXPECT_TRUE(inputs.RanksOfSubject("b").empty());
}

}  // namespace
}  // namespace lethe
