// Goal: a stream that broke at any place goes on, by request_id and the last token that arrived, to the tokens, the text
// and the state of a stream that never broke.
// Method: a tiny random model whose answers hold characters of several bytes, broken ones, and beginnings of stop strings;
// the stream is cut at every token, in every way a stream can be cut; the oracle is the same request in one piece on a
// fresh session.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/generation/pipelined_sink.h"
#include "tests/server/resume_testing.h"

namespace lethe::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::SizeIs;

class GenerationResumeTest : public ResumeTest {};

TEST_F(GenerationResumeTest, AClientThatIsLostAtAnyTokenGetsTheRest) {
  for (const bool ends : {false, true}) {
    const GenerateCommand command = WithStops(ends);
    CutEverywhere(command, [](int64_t num_tokens, RecordingSink* sink) {
      sink->tokens_accepted_max = num_tokens;
    });
  }
}

TEST_F(GenerationResumeTest, ACancelledStreamGoesOn) {
  const GenerateCommand command = WithStops(true);
  CutEverywhere(command, [this](int64_t num_tokens, RecordingSink* sink) {
    sink->on_token = [=, this] {
      call_.cancelled = static_cast<int64_t>(sink->tokens.size()) == num_tokens;
    };
  });
}

// What may begin a stop string is not sent by the shutdown: it could not be taken back.
TEST_F(GenerationResumeTest, AStreamThatAShutdownEndedGoesOn) {
  for (const bool ends : {false, true}) {
    const GenerateCommand command = WithStops(ends);
    CutEverywhere(command, [this](int64_t num_tokens, RecordingSink* sink) {
      sink->on_token = [=, this] {
        call_.stop = static_cast<int64_t>(sink->tokens.size()) >= num_tokens;
      };
    });
  }
}

TEST_F(GenerationResumeTest, AShutdownSendsEverythingWhereNothingCanGoOn) {
  GenerateCommand command = WithStops(false);
  for (const bool can_go_on : {true, false}) {
    NewSession();
    if (!can_go_on) command.request = {};
    RecordingSink sink;
    sink.on_token = [&] { call_.stop = sink.tokens.size() == 10; };
    ASSERT_OK(Run(command, &sink));
    call_.stop = false;
    EXPECT_EQ(sink.finished.at(0).reason, FinishReason::kShutdown);
    EXPECT_EQ(sink.Raw().size(), can_go_on ? 6u : 10u);
  }
}

TEST_F(GenerationResumeTest, AStreamThatBreaksAtEveryTokenIsWholeInTheEnd) {
  const GenerateCommand command = WithStops(true);
  const Whole whole = RunWhole(command);
  NewSession();
  Got got;
  RecordingSink first;
  first.tokens_accepted_max = 1;
  EXPECT_THAT(Run(command, &first), StatusIs(absl::StatusCode::kCancelled));
  got.Add(first);
  uint64_t last_token_id = LastOf(first);
  for (int times = 0; times < 100; ++times) {
    RecordingSink sink;
    sink.tokens_accepted_max = 1;
    const absl::Status status = Resume(command, last_token_id, &sink);
    got.Add(sink);
    if (!sink.tokens.empty()) last_token_id = LastOf(sink);
    if (!status.ok()) continue;
    ExpectWhole(got, sink, whole);
    EXPECT_EQ(got.vocab_ids.size(), static_cast<size_t>(times) + 2);
    return;
  }
  FAIL() << "no end";
}

TEST_F(GenerationResumeTest, EndOfTextAndLimitsEndAResumedStreamToo) {
  GenerateCommand command = Prompt("a question", 400);
  command.sampling.temperature = 10;
  command.ignore_end_of_text = false;
  command.request = Key("r1");
  std::vector<FinishReason> reasons;
  for (command.sampling.seed = 1; command.sampling.seed < 40; ++command.sampling.seed) {
    const Whole whole = RunWhole(command);
    if (whole.finished.reason != FinishReason::kEndOfText || whole.token_ids.size() > 30) continue;
    CutEverywhere(command, [](int64_t num_tokens, RecordingSink* sink) {
      sink->tokens_accepted_max = num_tokens;
    });
    reasons.push_back(whole.finished.reason);
    break;
  }
  EXPECT_THAT(reasons, SizeIs(1));
  // What the session's own limit leaves is found at the first start.
  command = Prompt(std::string(570, 'a'), 0);
  command.sampling.max_tokens.reset();
  command.request = Key("r1");
  CutEverywhere(command, [](int64_t num_tokens, RecordingSink* sink) {
    sink->tokens_accepted_max = num_tokens;
  });
  EXPECT_EQ(RunWhole(command).finished.reason, FinishReason::kContextLimit);
  // A prompt alone.
  CutEverywhere(
      [&] {
        GenerateCommand prompt = Command();
        prompt.sampling.max_tokens = 0;
        return prompt;
      }(),
      [](int64_t, RecordingSink*) {});
}

TEST_F(GenerationResumeTest, AWholeAnswerIsSentFromAnyTokenAndChangesNothing) {
  for (const bool ends : {false, true}) {
    const GenerateCommand command = WithStops(ends);
    const Whole whole = RunWhole(command);
    const std::vector<int32_t>& vocab_ids = whole.got.vocab_ids;
    for (size_t i = 0; i <= whole.token_ids.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("behind ", i, " tokens"));
      // A client that is lost again does not take the answer with it.
      RecordingSink lost;
      lost.tokens_accepted_max = 0;
      Resume(command, i == 0 ? 0 : whole.token_ids[i - 1], &lost).IgnoreError();
      RecordingSink sink;
      ASSERT_OK(Resume(command, i == 0 ? 0 : whole.token_ids[i - 1], &sink));
      EXPECT_THAT(
          sink.VocabIds(),
          ElementsAreArray(vocab_ids.begin() + static_cast<std::ptrdiff_t>(i), vocab_ids.end()));
      const std::string raw = sink.Raw();
      EXPECT_EQ(whole.got.raw.substr(whole.got.raw.size() - raw.size()), raw);
      Got all;
      if (i == 0) {
        all.Add(sink);
        ExpectWhole(all, sink, whole);
      }
      EXPECT_EQ(sink.finished.at(0).answer_token_ids, whole.finished.answer_token_ids);
      EXPECT_EQ(DigestOf(entry_), whole.digest);
    }
    // Also when the session has gone on.
    ASSERT_OK(Append("more", ""));
    const auto digest = DigestOf(entry_);
    RecordingSink sink;
    ASSERT_OK(Resume(command, whole.token_ids[2], &sink));
    EXPECT_THAT(sink.VocabIds(), ElementsAreArray(vocab_ids.begin() + 3, vocab_ids.end()));
    EXPECT_EQ(DigestOf(entry_), digest);
  }
}

TEST_F(GenerationResumeTest, APipelinedStreamThatBreaksGoesOn) {
  const GenerateCommand command = WithStops(true);
  const Whole whole = RunWhole(command);
  for (int64_t num_tokens = 0; num_tokens < 30; num_tokens += 3) {
    NewSession();
    RecordingSink first;
    first.tokens_accepted_max = num_tokens;
    {
      PipelinedSink sink(&first);
      EXPECT_THAT(Generate(command, call_, &scheduler_, entry_, &sink),
                  StatusIs(absl::StatusCode::kCancelled));
    }
    Got got;
    got.Add(first);
    RecordingSink second;
    GenerateCommand again = command;
    again.last_token_id = LastOf(first);
    {
      PipelinedSink sink(&second);
      ASSERT_OK(Generate(again, call_, &scheduler_, entry_, &sink));
    }
    got.Add(second);
    ExpectWhole(got, second, whole);
  }
}

TEST_F(GenerationResumeTest, AnUnknownTokenBeginsTheAnswerAgain) {
  const GenerateCommand command = Command();
  const Whole whole = RunWhole(command);
  // Never given out, of the prompt, and behind the answer.
  for (const uint64_t token_id : {uint64_t{999'999}, uint64_t{3}, whole.token_ids.back() + 1}) {
    NewSession();
    RecordingSink first;
    first.tokens_accepted_max = 7;
    EXPECT_THAT(Run(command, &first), StatusIs(absl::StatusCode::kCancelled));
    RecordingSink second;
    ASSERT_OK(Resume(command, token_id, &second));
    EXPECT_EQ(second.started.at(0).resumed_after, 0u);
    Got got;
    got.Add(second);
    ExpectWhole(got, second, whole);
  }
}

TEST_F(GenerationResumeTest, OnlyDrawnTokensHaveLogprobs) {
  GenerateCommand command = Command();
  command.want_logprobs = true;
  command.sampling.top_logprobs = 2;
  NewSession();
  RecordingSink first;
  first.tokens_accepted_max = 10;
  EXPECT_THAT(Run(command, &first), StatusIs(absl::StatusCode::kCancelled));
  RecordingSink second;
  ASSERT_OK(Resume(command, first.tokens[3].token_id, &second));
  ASSERT_THAT(second.tokens, SizeIs(kAnswerTokens - 4));
  for (size_t i = 0; i < second.tokens.size(); ++i) {
    EXPECT_EQ(second.tokens[i].logprob.has_value(), i >= 6) << i;
    EXPECT_THAT(second.tokens[i].top_logprobs, SizeIs(i >= 6 ? 2 : 0)) << i;
  }
}

}  // namespace
}  // namespace lethe::testing
