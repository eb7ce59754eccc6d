// Goal: a session's inputs come back from their rows as they went in; a removal seals anew the segments that it changes
// and no other; drawn tokens are stored once, and never after a Forget took them.
// Method: Inputs of several kinds through codec and journal over a store in memory; rows compared by their ids.
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/journal/session_journal.h"
#include "tests/server/store_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// `count` inputs with ids from `first_id`, the last of them generated.
void AddInputs(uint64_t first_id, int64_t count, const std::string& label, Inputs* inputs) {
  for (int64_t i = 0; i < count; ++i) {
    const bool last = i == count - 1;
    inputs->Append(first_id + static_cast<uint64_t>(i), static_cast<int32_t>(i % 251),
                   last ? InputKind::kGenerated : InputKind::kPrompt, label);
  }
}

std::vector<uint64_t> IdsOf(const Inputs& inputs) {
  std::vector<uint64_t> ids;
  for (int64_t rank = 0; rank < inputs.size(); ++rank) ids.push_back(inputs.at(rank).token_id);
  return ids;
}

TEST(InputCodecTest, GivesBackWhatItGot) {
  Inputs inputs;
  AddInputs(3, 5, "", &inputs);
  AddInputs(20, 2, "patient", &inputs);
  inputs.Remove({1});  // marks what is generated behind
  const std::vector<double> keys = {1, 2, 3, 4, 5, 6};
  const std::vector<double> values = {-0.5, 0, 7, 8, 9, 10};
  const std::string bytes = EncodeInputs({inputs, 0, 6}, {keys, values, 1, 1});
  DecodedInputs decoded;
  ASSERT_OK(DecodeInputs(bytes, &decoded));
  EXPECT_EQ(IdsOf(decoded.inputs), IdsOf(inputs));
  for (int64_t rank = 0; rank < inputs.size(); ++rank) {
    EXPECT_EQ(decoded.inputs.at(rank).vocab_id, inputs.at(rank).vocab_id);
    EXPECT_EQ(decoded.inputs.at(rank).kind, inputs.at(rank).kind);
    EXPECT_EQ(decoded.inputs.at(rank).derived_from_forgotten,
              inputs.at(rank).derived_from_forgotten);
    EXPECT_EQ(decoded.inputs.subject(rank), inputs.subject(rank));
  }
  EXPECT_EQ(decoded.inputs.any_derived_from_forgotten(), true);
  EXPECT_TRUE(std::equal(keys.begin(), keys.end(), decoded.keys.begin(), decoded.keys.end()));
  EXPECT_TRUE(
      std::equal(values.begin(), values.end(), decoded.values.begin(), decoded.values.end()));
  for (size_t size = 0; size < bytes.size(); ++size) {
    DecodedInputs cut;
    EXPECT_THAT(DecodeInputs(bytes.substr(0, size), &cut), StatusIs(absl::StatusCode::kDataLoss));
  }
  // It goes on where the inputs end, and not before.
  EXPECT_THAT(DecodeInputs(bytes, &decoded), StatusIs(absl::StatusCode::kDataLoss));
}

class JournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(world_.Open());
    journal_ = std::make_unique<SessionJournal>(world_.store.get(), kNumber, JournalState());
    ASSERT_OK(journal_->Compact("snapshot"));
  }
  static constexpr int64_t kNumber = 7;

  absl::Status Store() { return journal_->AddInputs(inputs_, VectorRows(), "delta"); }
  // Row ids of the stored inputs.
  std::set<int64_t> InputRows() {
    std::set<int64_t> ids;
    const auto rows = world_.store->AllRows().value();
    for (const StoredRow& row : rows.at(kNumber)) {
      if (row.kind == RowKind::kInputs) ids.insert(row.row_id);
    }
    return ids;
  }
  absl::Status TakeBack(const std::vector<uint64_t>& ids) {
    std::vector<int64_t> ranks;
    for (const uint64_t id : ids) ranks.push_back(inputs_.FindRank(id));
    inputs_.Remove(ranks);
    return journal_->TakeBack({ids, inputs_, VectorRows(), "after"});
  }
  // What a new start reads.
  std::vector<uint64_t> StoredIds() {
    const auto rows = world_.store->AllRows().value();
    SessionJournal fresh(world_.store.get(), kNumber,
                         JournalState::FromRows(rows.at(kNumber)).value());
    return IdsOf(fresh.ReadInputs().value().inputs);
  }

  StoreWorld world_;
  std::unique_ptr<SessionJournal> journal_;
  Inputs inputs_;
};

TEST_F(JournalTest, OnlySegmentsThatChangeAreSealedAnew) {
  AddInputs(1, 2500, "", &inputs_);
  ASSERT_OK(Store());
  const std::set<int64_t> before = InputRows();
  ASSERT_THAT(before, SizeIs(3));
  ASSERT_EQ(world_.store->num_keys(), 4u);
  ASSERT_OK(TakeBack({1500, 1600}));
  const std::set<int64_t> after = InputRows();
  ASSERT_THAT(after, SizeIs(3));
  EXPECT_EQ(world_.store->num_keys(), 4u);
  EXPECT_EQ(after.count(*before.begin()), 1u);    // before the removal: as it was
  EXPECT_EQ(after.count(*++before.begin()), 0u);  // lost inputs
  EXPECT_EQ(after.count(*before.rbegin()), 0u);   // its generated token is derived now
  EXPECT_EQ(StoredIds(), IdsOf(inputs_));
  ASSERT_OK(TakeBack({2}));
  EXPECT_EQ(InputRows().count(*before.begin()), 0u);
  EXPECT_EQ(StoredIds(), IdsOf(inputs_));
}

TEST_F(JournalTest, ASegmentThatLosesEverythingIsGone) {
  AddInputs(1, 1024, "", &inputs_);
  ASSERT_OK(Store());
  AddInputs(1025, 3, "", &inputs_);
  ASSERT_OK(Store());
  ASSERT_OK(TakeBack({1025, 1026, 1027}));
  EXPECT_THAT(InputRows(), SizeIs(1));
  EXPECT_EQ(world_.store->num_keys(), 2u);
  AddInputs(2000, 1, "", &inputs_);
  ASSERT_OK(Store());
  EXPECT_EQ(StoredIds(), IdsOf(inputs_));
}

TEST_F(JournalTest, AFullSegmentIsFollowedByANewOneAndASmallOneIsFilled) {
  for (uint64_t id = 1; id <= 3; ++id) {
    AddInputs(id, 1, "", &inputs_);
    ASSERT_OK(Store());
  }
  EXPECT_EQ(world_.store->num_keys(), 2u);
  AddInputs(4, 1030, "", &inputs_);
  ASSERT_OK(Store());
  EXPECT_EQ(world_.store->num_keys(), 3u);
  EXPECT_EQ(StoredIds(), IdsOf(inputs_));
}

TEST_F(JournalTest, DrawnTokensAreStoredOnce) {
  AddInputs(1, 2, "", &inputs_);
  ASSERT_OK(Store());
  for (uint64_t id = 3; id <= 5; ++id) {
    AddInputs(id, 1, "", &inputs_);
    journal_->NoteDrawn(inputs_);
  }
  EXPECT_THAT(StoredIds(), ElementsAre(1, 2));
  ASSERT_OK(journal_->FlushDrawn());
  ASSERT_OK(journal_->FlushDrawn());
  EXPECT_THAT(StoredIds(), ElementsAre(1, 2, 3, 4, 5));
  AddInputs(6, 1, "", &inputs_);
  journal_->NoteDrawn(inputs_);
  ASSERT_OK(Store());
  ASSERT_OK(journal_->FlushDrawn());
  EXPECT_THAT(StoredIds(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(JournalTest, ADrawnTokenThatIsTakenBeforeItIsStoredStaysAway) {
  AddInputs(1, 2, "", &inputs_);
  ASSERT_OK(Store());
  for (uint64_t id = 3; id <= 5; ++id) {
    AddInputs(id, 1, "", &inputs_);
    journal_->NoteDrawn(inputs_);
  }
  const std::set<int64_t> before = InputRows();
  ASSERT_OK(TakeBack({4}));
  EXPECT_EQ(InputRows(), before);  // nothing stored has changed
  ASSERT_OK(journal_->FlushDrawn());
  EXPECT_THAT(StoredIds(), ElementsAre(1, 2, 3, 5));
}

TEST_F(JournalTest, ARowThatIsMissingIsMissed) {
  AddInputs(1, 3, "", &inputs_);
  ASSERT_OK(Store());
  const int64_t row_id = *InputRows().begin();
  std::vector<StoreChange> changes(1);
  changes[0].session = kNumber;
  changes[0].remove = {row_id};
  ASSERT_OK(world_.store->Apply(changes, Durability::kSynced));
  EXPECT_THAT(journal_->ReadInputs(), StatusIs(absl::StatusCode::kDataLoss));
  // Also by a new start, to which no row tells of it.
  const auto rows = world_.store->AllRows().value();
  SessionJournal fresh(world_.store.get(), kNumber,
                       JournalState::FromRows(rows.at(kNumber)).value());
  EXPECT_THAT(fresh.ReadMeta(), StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace lethe::testing
