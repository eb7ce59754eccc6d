// Goal: StopMatcher finds the first stop string wherever tokens cut the bytes, holds back no more
// than it must, loses and repeats nothing at any end, and can be recomputed after a Forget.
// Method: a search over all prefixes as oracle, on random texts over two letters where overlaps
// abound.
#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/generation/stop_matcher.h"
#include "tests/testing/status_matchers.h"

namespace lethe {
namespace {

using ::lethe::testing::StatusIs;

struct Match {
  size_t begin = 0;
  size_t stop_index = 0;
};

// The earliest end; of several there the longest, then the first given.
std::optional<Match> FindFirst(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<Match> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      const size_t length = stops[i].size();
      if (length > end || text.compare(end - length, length, stops[i]) != 0) continue;
      if (!best.has_value() || end - length < best->begin) best = Match{end - length, i};
    }
    if (best.has_value()) return best;
  }
  return std::nullopt;
}

size_t LongestOpenSuffix(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t length = text.size(); length > 0; --length) {
    for (const std::string& stop : stops) {
      if (length < stop.size() &&
          text.compare(text.size() - length, length, stop, 0, length) == 0) {
        return length;
      }
    }
  }
  return 0;
}

std::string RandomText(std::mt19937* random, size_t length_max) {
  std::string text;
  const size_t length = (*random)() % (length_max + 1);
  while (text.size() < length) text.push_back("ab"[(*random)() % 2]);
  return text;
}

std::vector<std::string> RandomStops(std::mt19937* random) {
  std::vector<std::string> stops;
  const size_t num_stops = (*random)() % 4;
  while (stops.size() < num_stops) stops.push_back(RandomText(random, 7) + "a");
  return stops;
}

// The bytes in `text` in random pieces, empty ones included.
StopMatcher::Output AppendInPieces(const std::string& text, std::mt19937* random,
                                   StopMatcher* matcher) {
  StopMatcher::Output all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t length = (*random)() % 4;
    const StopMatcher::Output output = matcher->Append(text.substr(begin, length));
    all.bytes += output.bytes;
    all.stop_index = output.stop_index;
    begin += length;
  }
  return all;
}

TEST(StopMatcherTest, FindsWhatTheSearchFindsInAnyPieces) {
  std::mt19937 random(1);
  for (int repeat = 0; repeat < 5000; ++repeat) {
    const std::vector<std::string> stops = RandomStops(&random);
    const std::string text = RandomText(&random, 40);
    ASSERT_OK_AND_ASSIGN(StopMatcher matcher, StopMatcher::Create(stops));
    const StopMatcher::Output output = AppendInPieces(text, &random, &matcher);
    const std::optional<Match> want = FindFirst(text, stops);
    ASSERT_EQ(output.stop_index.has_value(), want.has_value());
    if (want.has_value()) {
      EXPECT_EQ(output.stop_index, want->stop_index);
      EXPECT_EQ(output.bytes, text.substr(0, want->begin));
      EXPECT_EQ(matcher.num_held_bytes(), 0u);
      EXPECT_EQ(matcher.Append("more").bytes, "");
      EXPECT_EQ(matcher.Append("more").stop_index, want->stop_index);
      EXPECT_EQ(matcher.Finish(), "");
    } else {
      EXPECT_EQ(matcher.num_held_bytes(), LongestOpenSuffix(text, stops));
      EXPECT_EQ(output.bytes + matcher.Finish(), text);
    }
  }
}

TEST(StopMatcherTest, RecomputeFromRetainedBytesEqualsTheStreamThatNeverSawTheRest) {
  std::mt19937 random(2);
  for (int repeat = 0; repeat < 5000; ++repeat) {
    const std::vector<std::string> stops = RandomStops(&random);
    const std::string retained = RandomText(&random, 20);
    const std::string later = RandomText(&random, 20);
    ASSERT_OK_AND_ASSIGN(StopMatcher fresh, StopMatcher::Create(stops));
    std::string delivered = fresh.Append(retained).bytes;
    ASSERT_OK_AND_ASSIGN(StopMatcher matcher, StopMatcher::Create(stops));
    matcher.Append(RandomText(&random, 20));  // what was streamed before the Forget
    StopMatcher::Output output = matcher.Recompute(retained, delivered.size());
    EXPECT_EQ(output.bytes, "");
    EXPECT_EQ(matcher.num_held_bytes(), fresh.num_held_bytes());
    const StopMatcher::Output want = fresh.Append(later);
    output = matcher.Append(later);
    EXPECT_EQ(output.bytes, want.bytes);
    EXPECT_EQ(output.stop_index, want.stop_index);
    EXPECT_EQ(matcher.Finish(), fresh.Finish());
  }
}

TEST(StopMatcherTest, DeliveredBytesAreNeverReturnedAgain) {
  ASSERT_OK_AND_ASSIGN(StopMatcher matcher, StopMatcher::Create({"abc"}));
  // "ab" was delivered with a character between its letters that a Forget removed.
  StopMatcher::Output output = matcher.Recompute("xab", 3);
  EXPECT_EQ(output.bytes, "");
  output = matcher.Append("d");
  EXPECT_EQ(output.bytes, "d");
  output = matcher.Recompute("xab", 3);
  output = matcher.Append("c");
  EXPECT_EQ(output.bytes, "");
  EXPECT_EQ(output.stop_index, 0u);
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcherTest, RecomputeMayFindAStopThatTheForgetJoined) {
  ASSERT_OK_AND_ASSIGN(StopMatcher matcher, StopMatcher::Create({"abc"}));
  const StopMatcher::Output output = matcher.Recompute("yyabcz", 1);
  EXPECT_EQ(output.bytes, "y");
  EXPECT_EQ(output.stop_index, 0u);
}

TEST(StopMatcherTest, LongestOfTwoThatEndTogetherCounts) {
  ASSERT_OK_AND_ASSIGN(StopMatcher matcher, StopMatcher::Create({"c", "abc", "bc", "abc"}));
  const StopMatcher::Output output = matcher.Append("zabcz");
  EXPECT_EQ(output.bytes, "z");
  EXPECT_EQ(output.stop_index, 1u);
}

TEST(StopMatcherTest, BytesOfEveryValueMatch) {
  const std::string stop("\0\xFF\n", 3);
  ASSERT_OK_AND_ASSIGN(StopMatcher matcher, StopMatcher::Create({stop}));
  EXPECT_EQ(matcher.Append(std::string("x\0\xFF", 3)).bytes, "x");
  EXPECT_EQ(matcher.Append("\n").stop_index, 0u);
}

TEST(StopMatcherTest, NoStopStringsPassEverythingThrough) {
  StopMatcher matcher;
  EXPECT_EQ(matcher.Append("anything").bytes, "anything");
  EXPECT_EQ(matcher.Append("").bytes, "");
  EXPECT_EQ(matcher.num_held_bytes(), 0u);
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcherTest, FinishStartsAnew) {
  ASSERT_OK_AND_ASSIGN(StopMatcher matcher, StopMatcher::Create({"ab"}));
  EXPECT_EQ(matcher.Append("a").bytes, "");
  EXPECT_EQ(matcher.Finish(), "a");
  EXPECT_EQ(matcher.Append("b").bytes, "b");
  EXPECT_TRUE(matcher.Append("ab").stop_index.has_value());
  matcher.Finish();
  EXPECT_EQ(matcher.Append("c").bytes, "c");
}

TEST(StopMatcherTest, CreateNamesFieldAndRange) {
  const std::vector<std::string> longest(16, std::string(256, 'x'));
  EXPECT_OK(StopMatcher::Create(longest));
  EXPECT_THAT(StopMatcher::Create({""}), StatusIs(absl::StatusCode::kInvalidArgument, "stop"));
  EXPECT_THAT(StopMatcher::Create({std::string(257, 'x')}),
              StatusIs(absl::StatusCode::kInvalidArgument, "256"));
  EXPECT_THAT(StopMatcher::Create(std::vector<std::string>(17, "x")),
              StatusIs(absl::StatusCode::kInvalidArgument, "16"));
}

TEST(StopMatcherDeathTest, MoreDeliveredThanRetainedAborts) {
  StopMatcher matcher;
  EXPECT_DEATH(matcher.Recompute("ab", 3), "check failed");
}

}  // namespace
}  // namespace lethe
