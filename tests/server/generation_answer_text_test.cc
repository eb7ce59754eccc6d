// Goal: an answer's text survives stop strings, cut characters and a Forget in the middle, and no
// byte is sent twice.
// Method: plain cases.
#include <string>

#include "gtest/gtest.h"

#include "server/generation/answer_text.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

std::string Feed(const std::string& bytes, uint64_t first_id, AnswerText* text) {
  std::string sent;
  for (const char byte : bytes) sent += text->Append(first_id++, std::string(1, byte)).raw;
  return sent;
}

TEST(AnswerTextTest, PassesThroughWithoutStopStrings) {
  ASSERT_OK_AND_ASSIGN(AnswerText text, AnswerText::Create({}));
  EXPECT_EQ(Feed("hello", 1, &text), "hello");
  EXPECT_EQ(text.Finish().raw, "");
}

TEST(AnswerTextTest, HoldsAStopPrefixAndReleasesItAtTheEnd) {
  ASSERT_OK_AND_ASSIGN(AnswerText text, AnswerText::Create({"abc"}));
  EXPECT_EQ(Feed("xab", 1, &text), "x");
  EXPECT_EQ(text.Finish().text, "ab");
}

TEST(AnswerTextTest, CutCharacterIsSentRawAndCounted) {
  ASSERT_OK_AND_ASSIGN(AnswerText text, AnswerText::Create({}));
  EXPECT_EQ(Feed("a\xE2\x82", 1, &text), "a");
  const AnswerText::Output rest = text.Finish();
  EXPECT_EQ(rest.raw, "\xE2\x82");
  EXPECT_EQ(rest.text, "");
  EXPECT_EQ(text.num_invalid_utf8(), 1);
}

TEST(AnswerTextTest, InvalidBytesBecomeReplacementCharacters) {
  ASSERT_OK_AND_ASSIGN(AnswerText text, AnswerText::Create({}));
  const AnswerText::Output output = text.Append(1, "a\xFF!");
  EXPECT_EQ(output.text, "a\xEF\xBF\xBD!");
  EXPECT_EQ(output.raw, "a\xFF!");
  EXPECT_EQ(text.num_invalid_utf8(), 1);
}

TEST(AnswerTextTest, ForgetOfHeldBytesReleasesWhatIsNoPrefixAnyMore) {
  ASSERT_OK_AND_ASSIGN(AnswerText text, AnswerText::Create({"abc"}));
  EXPECT_EQ(Feed("xab", 1, &text), "x");
  // 'a' (id 2) goes: "b" cannot begin the stop string.
  const AnswerText::Output output = text.Retain([](uint64_t id) { return id != 2; });
  EXPECT_EQ(output.raw, "b");
  EXPECT_EQ(text.Finish().raw, "");
}

TEST(AnswerTextTest, ForgetOfEverythingLeavesNothingHeld) {
  ASSERT_OK_AND_ASSIGN(AnswerText text, AnswerText::Create({"abc"}));
  Feed("xab", 1, &text);
  EXPECT_EQ(text.Retain([](uint64_t) { return false; }).raw, "");
  EXPECT_EQ(Feed("ab", 10, &text), "");
  EXPECT_EQ(text.Finish().raw, "ab");
}

TEST(AnswerTextTest, ForgetOfDeliveredBytesSendsNothingTwice) {
  ASSERT_OK_AND_ASSIGN(AnswerText text, AnswerText::Create({"zz"}));
  EXPECT_EQ(Feed("hello", 1, &text), "hello");
  EXPECT_EQ(text.Retain([](uint64_t id) { return id == 2 || id == 5; }).raw, "");
  EXPECT_EQ(Feed("!", 6, &text), "!");
}

TEST(AnswerTextTest, StopStringMustBeValid) {
  EXPECT_THAT(AnswerText::Create({""}), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lethe::testing
