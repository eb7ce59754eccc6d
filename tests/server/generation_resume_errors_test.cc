// Goal: a stream that cannot go on says so and changes nothing; a Forget takes what a stream could go on with.
// Method: as generation_resume_test.cc.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/server/resume_testing.h"

namespace lethe::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class GenerationResumeErrorsTest : public ResumeTest {};

TEST_F(GenerationResumeErrorsTest, WhatIsNotKnownRunsAsNewFromItsStartOnly) {
  NewSession();
  const auto digest = DigestOf(entry_);
  const GenerateCommand command = Command();
  RecordingSink refused;
  const absl::Status unknown = Resume(command, 7, &refused);
  EXPECT_THAT(unknown, StatusIs(absl::StatusCode::kFailedPrecondition, "last_token_id"));
  EXPECT_EQ(ReasonOf(unknown), "NOT_RESUMABLE");
  EXPECT_EQ(DigestOf(entry_), digest);
  RecordingSink sink;
  ASSERT_OK(Resume(command, 0, &sink));
  EXPECT_FALSE(sink.started.at(0).resumed_after.has_value());
  EXPECT_THAT(sink.tokens, SizeIs(kAnswerTokens));
  // A client that was lost with the prompt asks again the same way.
  NewSession();
  RecordingSink lost;
  lost.on_started = [&] { call_.cancelled = true; };
  EXPECT_THAT(Run(command, &lost), StatusIs(absl::StatusCode::kCancelled));
  call_.cancelled = false;
  RecordingSink again;
  ASSERT_OK(Resume(command, 0, &again));
  EXPECT_FALSE(again.started.at(0).resumed_after.has_value());
}

TEST_F(GenerationResumeErrorsTest, AForkCannotGoOn) {
  NewSession();
  GenerateCommand command = Command();
  command.remember = false;
  RecordingSink first;
  first.tokens_accepted_max = 5;
  EXPECT_THAT(Run(command, &first), StatusIs(absl::StatusCode::kCancelled));
  RecordingSink second;
  EXPECT_EQ(ReasonOf(Resume(command, LastOf(first), &second)), "NOT_RESUMABLE");
  EXPECT_EQ(ReasonOf(Resume(command, 0, &second)), "NOT_RESUMABLE");
  EXPECT_THAT(second.started, IsEmpty());
  EXPECT_OK(Append("the session serves on", ""));
}

TEST_F(GenerationResumeErrorsTest, NothingGoesOnAfterAForget) {
  for (const bool is_complete : {false, true}) {
    NewSession();
    ASSERT_OK(Append("patient 17", "patient"));
    const GenerateCommand command = Command();
    RecordingSink first;
    if (!is_complete) first.tokens_accepted_max = 5;
    EXPECT_EQ(Run(command, &first).ok(), is_complete);
    ASSERT_OK(Forget("patient"));
    const auto digest = DigestOf(entry_);
    RecordingSink second;
    EXPECT_EQ(ReasonOf(Resume(command, LastOf(first), &second)), "NOT_RESUMABLE");
    EXPECT_EQ(ReasonOf(Run(command, &second)), "REQUEST_FORGOTTEN");
    EXPECT_THAT(second.started, IsEmpty());
    EXPECT_EQ(DigestOf(entry_), digest);
  }
}

// The end of a stream must not bring back what the Forget in it destroyed.
TEST_F(GenerationResumeErrorsTest, NothingGoesOnAfterAForgetInTheStream) {
  const GenerateCommand command = WithStops(true);
  NewSession();
  ASSERT_OK(Append("patient 17", "patient"));
  RecordingSink first;
  first.on_token = [&] {
    if (first.tokens.size() == 5) {
      ASSERT_OK(Forget("patient"));
    }
    call_.cancelled = first.tokens.size() == 8;
  };
  EXPECT_THAT(Run(command, &first), StatusIs(absl::StatusCode::kCancelled));
  call_.cancelled = false;
  ASSERT_THAT(first.notices, SizeIs(1));
  RecordingSink second;
  EXPECT_EQ(ReasonOf(Resume(command, LastOf(first), &second)), "NOT_RESUMABLE");
  FairMutexLock lock(&entry_->mutex);
  for (const RequestTable::Saved& saved : entry_->requests.Save()) {
    EXPECT_EQ(saved.answer.find("answers"), std::string::npos);
    EXPECT_EQ(saved.answer.find(command.stop[0]), std::string::npos);
    EXPECT_FALSE(saved.content.has_value());
  }
}

TEST_F(GenerationResumeErrorsTest, ACutAnswerDoesNotGoOnInASessionThatHas) {
  NewSession();
  const GenerateCommand command = Command();
  RecordingSink first;
  first.tokens_accepted_max = 5;
  EXPECT_THAT(Run(command, &first), StatusIs(absl::StatusCode::kCancelled));
  ASSERT_OK(Append("more", ""));
  const auto digest = DigestOf(entry_);
  RecordingSink second;
  EXPECT_EQ(ReasonOf(Resume(command, LastOf(first), &second)), "NOT_RESUMABLE");
  EXPECT_THAT(second.started, IsEmpty());
  EXPECT_EQ(DigestOf(entry_), digest);
  // Nor when what came in is a further answer.
  NewSession();
  RecordingSink third;
  third.tokens_accepted_max = 5;
  EXPECT_THAT(Run(command, &third), StatusIs(absl::StatusCode::kCancelled));
  GenerateCommand other = Command();
  other.prompt.clear();
  other.request = Key("r2");
  RecordingSink fourth;
  ASSERT_OK(Run(other, &fourth));
  EXPECT_EQ(ReasonOf(Resume(command, LastOf(third), &second)), "NOT_RESUMABLE");
  RecordingSink fifth;
  ASSERT_OK(Resume(other, 0, &fifth));
  EXPECT_THAT(fifth.VocabIds(), ElementsAreArray(fourth.VocabIds()));
}

TEST_F(GenerationResumeErrorsTest, OneStreamOfARequestAtATime) {
  NewSession();
  const GenerateCommand command = Command();
  RecordingSink first;
  first.on_token = [&] {
    RecordingSink second;
    EXPECT_EQ(ReasonOf(Resume(command, 0, &second)), "REQUEST_RUNNING");
    EXPECT_EQ(ReasonOf(Append("x", "")), "SESSION_BUSY");
  };
  first.tokens_accepted_max = 5;
  EXPECT_THAT(Run(command, &first), StatusIs(absl::StatusCode::kCancelled));
  RecordingSink resumed;
  resumed.on_token = first.on_token;
  ASSERT_OK(Resume(command, LastOf(first), &resumed));
  RecordingSink again;
  again.on_token = first.on_token;
  ASSERT_OK(Resume(command, LastOf(first), &again));
  RecordingSink refused;
  EXPECT_EQ(ReasonOf(Run(command, &refused)), "REQUEST_DONE");
  GenerateCommand other = command;
  other.request = Key("r1", "other content");
  EXPECT_EQ(ReasonOf(Resume(other, LastOf(first), &refused)), "REQUEST_ID_REUSED");
}

TEST_F(GenerationResumeErrorsTest, AForgetInAResumedStreamIsToldAndTheStreamGoesOn) {
  for (const size_t forget_after : {size_t{2}, size_t{12}}) {
    NewSession();
    ASSERT_OK(Append("patient 17", "patient"));
    const GenerateCommand command = Command();
    RecordingSink first;
    first.tokens_accepted_max = 8;
    EXPECT_THAT(Run(command, &first), StatusIs(absl::StatusCode::kCancelled));
    RecordingSink second;
    bool is_forgotten = false;
    second.on_token = [&] {
      if (is_forgotten || second.tokens.size() < forget_after) return;
      is_forgotten = true;
      ASSERT_OK(Forget("patient"));
    };
    ASSERT_OK(Resume(command, 0, &second));
    ASSERT_THAT(second.notices, SizeIs(1));
    EXPECT_EQ(second.notices[0].num_forgotten, 10);
    // What was there came in one piece before the Forget.
    const size_t kept = std::max<size_t>(forget_after, 8);
    std::vector<int32_t> drawn = second.VocabIds();
    ASSERT_THAT(drawn, SizeIs(kAnswerTokens));
    std::vector<int32_t> retained = TinyModel()->Tokenize("some history. a question");
    const auto split = drawn.begin() + static_cast<std::ptrdiff_t>(kept);
    retained.insert(retained.end(), drawn.begin(), split);
    EXPECT_THAT(std::vector<int32_t>(split, drawn.end()),
                ElementsAreArray(Continuation(retained, command.sampling,
                                              kAnswerTokens - static_cast<int64_t>(kept))));
    EXPECT_EQ(DigestOf(entry_), FreshDigest(HistoryOf(entry_)));
    RecordingSink third;
    EXPECT_EQ(ReasonOf(Resume(command, 0, &third)), "NOT_RESUMABLE");
  }
}

TEST_F(GenerationResumeErrorsTest, AnAnswerInTwoPiecesIsForgottenAsOne) {
  NewSession();
  const auto digest = DigestOf(entry_);
  const GenerateCommand command = Command();
  RecordingSink first;
  first.tokens_accepted_max = 8;
  EXPECT_THAT(Run(command, &first), StatusIs(absl::StatusCode::kCancelled));
  RecordingSink second;
  ASSERT_OK(Resume(command, LastOf(first), &second));
  ASSERT_OK(Forget("answers"));
  EXPECT_EQ(DigestOf(entry_), digest);
}

}  // namespace
}  // namespace lethe::testing
