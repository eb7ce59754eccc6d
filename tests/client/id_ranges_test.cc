// Goal: ids are read as people type them, and refused when they do not mean one thing.
// Method: accepted and refused texts by hand; formatting read back by eye in the expectation.
#include "client/id_ranges.h"

#include "gmock/gmock.h"

#include "tests/testing/status_matchers.h"

namespace lethe::client {
namespace {

using ::lethe::testing::StatusIs;
using ::testing::ElementsAre;

TEST(IdRangesTest, ParsesSinglesAndRangesWithBothEnds) {
  ASSERT_OK_AND_ASSIGN(const v1::TokenSelection selection, ParseIds("--ids", "1,2, 5-9,7-7"));
  EXPECT_THAT(selection.token_ids(), ElementsAre(1, 2));
  ASSERT_EQ(selection.ranges_size(), 2);
  EXPECT_EQ(selection.ranges(0).first(), 5u);
  EXPECT_EQ(selection.ranges(0).end(), 10u);
  EXPECT_EQ(selection.ranges(1).first(), 7u);
  EXPECT_EQ(selection.ranges(1).end(), 8u);
}

TEST(IdRangesTest, KeepsTheLargestId) {
  ASSERT_OK_AND_ASSIGN(const v1::TokenSelection selection,
                       ParseIds("--ids", "18446744073709551614-18446744073709551614"));
  EXPECT_EQ(selection.ranges(0).end(), UINT64_MAX);
}

TEST(IdRangesTest, RefusesWhatIsNotAListOfIds) {
  for (const char* text : {"", ",", "1,", "a", "-1", "+1", "1-", "-", "9-5", "1.5", "0x10", "1 2",
                           "5-6-7", "18446744073709551615", "99999999999999999999"}) {
    EXPECT_THAT(ParseIds("--ids", text), StatusIs(absl::StatusCode::kInvalidArgument, "--ids: "))
        << text;
  }
}

// Read as octal by some, as decimal by others.
TEST(IdRangesTest, RefusesLeadingZeros) {
  for (const char* text : {"010", "00", "1,02", "0012-13", "12-0013"}) {
    EXPECT_THAT(ParseIds("--ids", text), StatusIs(absl::StatusCode::kInvalidArgument, "--ids: "))
        << text;
  }
  EXPECT_OK(ParseIds("--ids", "0,0-10"));
}

TEST(IdRangesTest, ParsesAHalfOpenRange) {
  ASSERT_OK_AND_ASSIGN(const v1::TokenRange range, ParseRange("--range", "5:10"));
  EXPECT_EQ(range.first(), 5u);
  EXPECT_EQ(range.end(), 10u);
}

TEST(IdRangesTest, RefusesEmptyAndMalformedRanges) {
  for (const char* text :
       {"", ":", "5:", ":5", "5:5", "6:5", "1:2:3", "a:b", "5-9", "012:14", "12:014"}) {
    EXPECT_THAT(ParseRange("--range", text),
                StatusIs(absl::StatusCode::kInvalidArgument, "--range: "))
        << text;
  }
}

TEST(IdRangesTest, ParsesVocabIdsUpToTheirLimit) {
  ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids,
                       ParseVocabIds("--vocab-ids", "72,0,2147483647"));
  EXPECT_THAT(ids, ElementsAre(72, 0, 2147483647));
  EXPECT_THAT(ParseVocabIds("--vocab-ids", "2147483648"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "--vocab-ids: each id must be a whole number from 0 to 2147483647"));
  EXPECT_THAT(ParseVocabIds("--vocab-ids", "072"),
              StatusIs(absl::StatusCode::kInvalidArgument, "without leading zeros"));
  EXPECT_THAT(ParseVocabIds("--vocab-ids", ""), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(IdRangesTest, FormatsRangesWithBothEndsAndJoinsNeighbours) {
  v1::TokenSelection selection;
  EXPECT_EQ(FormatRanges(selection.ranges()), "none");
  for (const auto& [first, end] : {std::pair(17, 20), std::pair(20, 59), std::pair(60, 61)}) {
    v1::TokenRange* range = selection.add_ranges();
    range->set_first(static_cast<uint64_t>(first));
    range->set_end(static_cast<uint64_t>(end));
  }
  EXPECT_EQ(FormatRanges(selection.ranges()), "17-58, 60");
  EXPECT_EQ(FormatRange(v1::TokenRange()), "none");
}

}  // namespace
}  // namespace lethe::client
