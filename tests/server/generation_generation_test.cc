// Goal: a stream retains exactly what its client got, whatever ends it, and goes on from the right
// state after a Forget.
// Method: a tiny random model; the sink runs Forgets, cancellations and failures between two
// tokens, where the loop holds no lock; states and later tokens are compared with those of fresh
// sessions.
#include "server/generation/generation.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/certification/forgetter.h"
#include "server/error/error_info.h"
#include "server/generation/ingest.h"
#include "server/generation/pipelined_sink.h"
#include "server/model/synthetic_model.h"
#include "tests/server/serving_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::SizeIs;

std::vector<int32_t> Concat(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string ReasonOf(const absl::Status& status) {
  return GetErrorInfo(status).value_or(ErrorInfo{}).reason;
}

class GenerationTest : public ::testing::Test {
 protected:
  absl::Status Run(const GenerateCommand& command, RecordingSink* sink) {
    return Generate(command, call_, &scheduler_, entry_, sink);
  }
  absl::StatusOr<AppendReceipt> Append(const std::string& text, const std::string& subject) {
    return AppendInputs({TinyModel()->Tokenize(text), subject, {}}, call_, &scheduler_, entry_);
  }
  absl::StatusOr<ForgetReceipt> Forget(const ForgetSelector& selector, DerivedPolicy policy) {
    ForgetCommand command;
    command.selector = selector;
    command.policy = policy;
    return ForgetInputs(command, other_call_, &scheduler_, trail_.trail, entry_);
  }
  // Runs `action` once, after the given number of tokens.
  static void At(size_t num_tokens, RecordingSink* sink, const std::function<void()>& action) {
    sink->on_token = [=] {
      if (sink->tokens.size() == num_tokens) action();
    };
  }

  FakeCall call_;
  FakeCall other_call_;
  ComputeScheduler scheduler_{1};
  SessionRegistry registry_{10};
  std::shared_ptr<SessionEntry> entry_ = NewEntry(&registry_);
  TestTrail trail_;
};

TEST_F(GenerationTest, StreamsWhatASingleSessionWouldWrite) {
  GenerateCommand command = Prompt("a question", 40);
  command.sampling.temperature = 0.8;
  command.sampling.repetition_penalty = 1.3;
  RecordingSink sink;
  ASSERT_OK(Run(command, &sink));
  const std::vector<int32_t> expected = Continuation(command.prompt, command.sampling, 40);
  EXPECT_THAT(sink.VocabIds(), ElementsAreArray(expected));
  EXPECT_THAT(HistoryOf(entry_), ElementsAreArray(Concat(command.prompt, expected)));
  EXPECT_EQ(DigestOf(entry_), FreshDigest(HistoryOf(entry_)));
  ASSERT_THAT(sink.started, SizeIs(1));
  EXPECT_EQ(sink.started[0].seed, 7u);
  EXPECT_EQ(sink.started[0].num_context_tokens, 10);
  EXPECT_EQ(sink.started[0].prompt_token_ids, (TokenIdRange{1, 11}));
  ASSERT_THAT(sink.finished, SizeIs(1));
  EXPECT_EQ(sink.finished[0].reason, FinishReason::kMaxTokens);
  EXPECT_EQ(sink.finished[0].answer_token_ids, (TokenIdRange{11, 51}));
  EXPECT_EQ(sink.finished[0].usage.num_generated_tokens, 40);
}

TEST_F(GenerationTest, PromptLongerThanAPieceGivesTheSameState) {
  const GenerateCommand command = Prompt(std::string(300, 'x') + "y", 3);
  RecordingSink sink;
  ASSERT_OK(Run(command, &sink));
  EXPECT_EQ(DigestOf(entry_), FreshDigest(HistoryOf(entry_)));
  EXPECT_THAT(HistoryOf(entry_), SizeIs(304));
}

TEST_F(GenerationTest, ClientThatGoesAwayLeavesExactlyTheTokensItTook) {
  const GenerateCommand command = Prompt("abc", 50);
  RecordingSink sink;
  sink.tokens_accepted_max = 5;
  EXPECT_THAT(Run(command, &sink), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(HistoryOf(entry_), ElementsAreArray(Concat(command.prompt, sink.VocabIds())));
  EXPECT_THAT(sink.tokens, SizeIs(5));
  EXPECT_EQ(DigestOf(entry_), FreshDigest(HistoryOf(entry_)));
}

TEST_F(GenerationTest, PipelinedClientThatGoesAwayLeavesExactlyTheTokensItTook) {
  const GenerateCommand command = Prompt("abc", 200);
  RecordingSink client;
  client.tokens_accepted_max = 5;
  PipelinedSink sink(&client);
  EXPECT_THAT(Generate(command, call_, &scheduler_, entry_, &sink),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(HistoryOf(entry_), ElementsAreArray(Concat(command.prompt, client.VocabIds())));
  EXPECT_EQ(DigestOf(entry_), FreshDigest(HistoryOf(entry_)));
}

TEST_F(GenerationTest, ClientLostBeforeItWasToldThePromptsIdsLeavesNothing) {
  class LostClient : public RecordingSink {
    bool Started(const StartedEvent& /*event*/) override { return false; }
  } client;
  PipelinedSink sink(&client);
  EXPECT_THAT(Generate(Prompt("abc", 0), call_, &scheduler_, entry_, &sink),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(HistoryOf(entry_), SizeIs(0));
}

TEST_F(GenerationTest, CancelledStreamLeavesExactlyTheTokensSent) {
  RecordingSink sink;
  At(4, &sink, [&] { call_.cancelled = true; });
  EXPECT_THAT(Run(Prompt("abc", 50), &sink), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(HistoryOf(entry_), SizeIs(7));
  call_.cancelled = false;
  RecordingSink next;
  EXPECT_OK(Run(Prompt("d", 2), &next));
}

TEST_F(GenerationTest, CancelDuringThePromptTakesAllOfItBack) {
  ASSERT_OK(Append("before", ""));
  const auto digest = DigestOf(entry_);
  RecordingSink sink;
  sink.on_started = [&] { call_.cancelled = true; };
  EXPECT_THAT(Run(Prompt(std::string(300, 'p'), 5), &sink), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(DigestOf(entry_), digest);
}

TEST_F(GenerationTest, ForgetBetweenTwoTokensIsToldAndTheStreamGoesOnFromTheNewState) {
  ASSERT_OK(Append("patient A takes x. ", "patient-a"));
  ASSERT_OK(Append("weather is fine. ", ""));
  GenerateCommand command = Prompt("go on", 12);
  command.sampling.temperature = 1.0;
  RecordingSink sink;
  At(5, &sink, [&] {
    ASSERT_OK(Forget(ForgetSelector::Subject("patient-a"), DerivedPolicy::kKeepAndReport));
  });
  ASSERT_OK(Run(command, &sink));
  ASSERT_THAT(sink.notices, SizeIs(1));
  EXPECT_EQ(sink.notices[0].num_forgotten, 19);
  EXPECT_EQ(sink.notices[0].num_context_tokens, 17 + 5 + 5);
  const std::vector<int32_t> drawn = sink.VocabIds();
  ASSERT_THAT(drawn, SizeIs(12));
  std::vector<int32_t> retained = TinyModel()->Tokenize("weather is fine. go on");
  retained.insert(retained.end(), drawn.begin(), drawn.begin() + 5);
  EXPECT_THAT(std::vector<int32_t>(drawn.begin() + 5, drawn.end()),
              ElementsAreArray(Continuation(retained, command.sampling, 7)));
  EXPECT_EQ(DigestOf(entry_), FreshDigest(Concat(retained, {drawn.begin() + 5, drawn.end()})));
}

TEST_F(GenerationTest, DerivedTokensOfARunningStreamGoWithWhatTheyCameFrom) {
  ASSERT_OK(Append("secret", "s"));
  RecordingSink sink;
  absl::StatusOr<ForgetReceipt> receipt = absl::UnknownError("not run");
  At(5, &sink,
     [&] { receipt = Forget(ForgetSelector::Subject("s"), DerivedPolicy::kForgetDerived); });
  ASSERT_OK(Run(Prompt("go on", 8), &sink));
  ASSERT_OK(receipt);
  EXPECT_EQ(receipt->num_forgotten, 6 + 5);
  EXPECT_THAT(receipt->derived_forgotten, SizeIs(1));
  const std::vector<int32_t> drawn = sink.VocabIds();
  EXPECT_EQ(DigestOf(entry_),
            FreshDigest(Concat(TinyModel()->Tokenize("go on"), {drawn.begin() + 5, drawn.end()})));
}

TEST_F(GenerationTest, ForgettingEverythingEndsTheStream) {
  RecordingSink sink;
  At(3, &sink,
     [&] { ASSERT_OK(Forget(ForgetSelector::Everything(), DerivedPolicy::kForgetDerived)); });
  ASSERT_OK(Run(Prompt("abc", 20), &sink));
  ASSERT_THAT(sink.finished, SizeIs(1));
  EXPECT_EQ(sink.finished[0].reason, FinishReason::kForgotten);
  EXPECT_EQ(DigestOf(entry_), FreshDigest({}));
}

TEST_F(GenerationTest, ForkLeavesTheSessionAsItWas) {
  ASSERT_OK(Append("some history", ""));
  const auto digest = DigestOf(entry_);
  GenerateCommand command = Prompt("question", 20);
  command.remember = false;
  RecordingSink sink;
  ASSERT_OK(Run(command, &sink));
  EXPECT_EQ(DigestOf(entry_), digest);
  EXPECT_THAT(sink.VocabIds(),
              ElementsAreArray(Continuation(TinyModel()->Tokenize("some historyquestion"),
                                            command.sampling, 20)));
  EXPECT_EQ(sink.started[0].prompt_token_ids.end - sink.started[0].prompt_token_ids.first, 8u);
  EXPECT_EQ(sink.tokens[0].token_id, sink.started[0].prompt_token_ids.end);
}

TEST_F(GenerationTest, ForgetReachesRunningForks) {
  ASSERT_OK(Append("patient A takes x. ", "patient-a"));
  ASSERT_OK(Append("more", ""));
  GenerateCommand command = Prompt("question", 12);
  command.remember = false;
  command.sampling.temperature = 1.0;
  RecordingSink sink;
  At(5, &sink,
     [&] { ASSERT_OK(Forget(ForgetSelector::Subject("patient-a"), DerivedPolicy::kFail)); });
  ASSERT_OK(Run(command, &sink));
  ASSERT_THAT(sink.notices, SizeIs(1));
  // The policy cannot ask the fork: its five derived tokens went too.
  EXPECT_EQ(sink.notices[0].num_forgotten, 19 + 5);
  const std::vector<int32_t> drawn = sink.VocabIds();
  EXPECT_THAT(
      std::vector<int32_t>(drawn.begin() + 5, drawn.end()),
      ElementsAreArray(Continuation(TinyModel()->Tokenize("morequestion"), command.sampling, 7)));
}

TEST_F(GenerationTest, OnlyOneRememberedWriterAtATimeAndForksBeside) {
  RecordingSink sink;
  At(2, &sink, [&] {
    RecordingSink second;
    const absl::Status busy = Run(Prompt("x", 1), &second);
    EXPECT_THAT(busy, StatusIs(absl::StatusCode::kAborted, "session_id"));
    EXPECT_EQ(ReasonOf(busy), "SESSION_BUSY");
    EXPECT_EQ(ReasonOf(Append("x", "").status()), "SESSION_BUSY");
    GenerateCommand fork = Prompt("x", 2);
    fork.remember = false;
    RecordingSink third;
    EXPECT_OK(Run(fork, &third));
  });
  ASSERT_OK(Run(Prompt("abc", 4), &sink));
  EXPECT_THAT(HistoryOf(entry_), SizeIs(7));
}

TEST_F(GenerationTest, RequestIdIsNeverGeneratedTwice) {
  GenerateCommand command = Prompt("abc", 4);
  command.request = Key("r1");
  RecordingSink sink;
  At(1, &sink, [&] {
    RecordingSink second;
    EXPECT_EQ(ReasonOf(Run(command, &second)), "REQUEST_RUNNING");
  });
  ASSERT_OK(Run(command, &sink));
  RecordingSink again;
  const absl::Status done = Run(command, &again);
  EXPECT_THAT(done, StatusIs(absl::StatusCode::kAlreadyExists, "request_id"));
  command.request = Key("r1", "other");
  EXPECT_EQ(ReasonOf(Run(command, &again)), "REQUEST_ID_REUSED");
  EXPECT_THAT(HistoryOf(entry_), SizeIs(7));
}

TEST_F(GenerationTest, StopStringEndsTheTextAndStaysInTheHistory) {
  RecordingSink plain;
  GenerateCommand command = Prompt("stop test", 60);
  command.sampling.temperature = 1.5;
  ASSERT_OK(Run(command, &plain));
  const std::string text = plain.Raw();
  ASSERT_THAT(text, SizeIs(60));
  entry_ = NewEntry(&registry_);
  command.stop = {text.substr(20, 3)};
  RecordingSink sink;
  ASSERT_OK(Run(command, &sink));
  const size_t found = text.find(command.stop[0]);
  EXPECT_EQ(sink.Raw(), text.substr(0, found));
  EXPECT_EQ(sink.finished[0].reason, FinishReason::kStopString);
  EXPECT_EQ(sink.finished[0].matched_stop, command.stop[0]);
  EXPECT_THAT(HistoryOf(entry_), SizeIs(9 + found + 3));
}

TEST_F(GenerationTest, BudgetsAreNamedAndChangeNothing) {
  RecordingSink sink;
  GenerateCommand empty = Prompt("", 5);
  const absl::Status nothing = Run(empty, &sink);
  EXPECT_THAT(nothing, StatusIs(absl::StatusCode::kFailedPrecondition, "prompt"));
  EXPECT_EQ(ReasonOf(nothing), "EMPTY_CONTEXT");
  EXPECT_THAT(Run(Prompt(std::string(601, 'a'), 0), &sink),
              StatusIs(absl::StatusCode::kInvalidArgument, "at most 600"));
  EXPECT_THAT(Run(Prompt("abc", 598), &sink),
              StatusIs(absl::StatusCode::kInvalidArgument, "output.max_tokens"));
  EXPECT_EQ(DigestOf(entry_), FreshDigest({}));
  GenerateCommand full = Prompt(std::string(590, 'a'), 0);
  full.sampling.max_tokens.reset();
  ASSERT_OK(Run(full, &sink));
  EXPECT_EQ(sink.finished.back().reason, FinishReason::kContextLimit);
  EXPECT_THAT(HistoryOf(entry_), SizeIs(600));
}

TEST_F(GenerationTest, ZeroTokensIngestsThePromptOnly) {
  RecordingSink sink;
  ASSERT_OK(Run(Prompt("abc", 0), &sink));
  EXPECT_THAT(sink.tokens, SizeIs(0));
  EXPECT_THAT(HistoryOf(entry_), SizeIs(3));
}

TEST_F(GenerationTest, ShutdownEndsAStreamAtATokenBoundary) {
  RecordingSink sink;
  At(2, &sink, [&] { call_.stop = true; });
  ASSERT_OK(Run(Prompt("abc", 50), &sink));
  EXPECT_EQ(sink.finished[0].reason, FinishReason::kShutdown);
  EXPECT_THAT(HistoryOf(entry_), SizeIs(5));
}

TEST_F(GenerationTest, LogprobsComeWhereAskedFor) {
  GenerateCommand command = Prompt("abc", 3);
  command.want_logprobs = true;
  command.sampling.top_logprobs = 4;
  RecordingSink sink;
  ASSERT_OK(Run(command, &sink));
  for (const GeneratedTokenEvent& token : sink.tokens) {
    ASSERT_TRUE(token.logprob.has_value());
    ASSERT_THAT(token.top_logprobs, SizeIs(4));
    EXPECT_EQ(token.top_logprobs[0].vocab_id, token.vocab_id);  // greedy
    EXPECT_EQ(token.top_logprobs[0].logprob, *token.logprob);
  }
}

TEST_F(GenerationTest, DeletedSessionEndsItsStreams) {
  RecordingSink sink;
  At(2, &sink, [&] { ASSERT_OK(registry_.Delete(entry_->session_id, {})); });
  EXPECT_EQ(ReasonOf(Run(Prompt("abc", 50), &sink)), "SESSION_DELETED");
}

TEST_F(GenerationTest, NonFiniteLogitsEndTheStreamAndKeepTheSession) {
  const ModelConfig config = TinyModel()->config();
  TensorMap tensors = SyntheticTensors(config, 1);
  for (float& weight : tensors["lm_head.weight"].values) weight *= 3e38F;
  ASSERT_OK_AND_ASSIGN(const auto model, Model::Create(config, tensors));
  ASSERT_OK_AND_ASSIGN(entry_, registry_.Create({model, {}, ""}, {}));
  RecordingSink sink;
  const absl::Status status = Run(Prompt("abc", 5), &sink);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal));
  EXPECT_EQ(ReasonOf(status), "NON_FINITE_LOGITS");
  EXPECT_THAT(HistoryOf(entry_), SizeIs(3));
  EXPECT_OK(Append("more", ""));
}

// Streams, forks, appends and Forgets of one session from many threads: every outcome is one of the
// documented ones, and the state is that of the retained history.
TEST_F(GenerationTest, ConcurrentCallsKeepTheStateCanonical) {
  ComputeScheduler scheduler(3);
  ASSERT_OK(Append("start", ""));
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 4; ++round) {
        FakeCall call;
        RecordingSink sink;
        GenerateCommand command = Prompt(absl::StrCat("t", i), 6);
        command.subject = absl::StrCat("s", i);
        command.remember = i % 2 == 0;
        const absl::Status status = Generate(command, call, &scheduler, entry_, &sink);
        EXPECT_TRUE(status.ok() || ReasonOf(status) == "SESSION_BUSY") << status;
        ForgetCommand forget;
        forget.selector = ForgetSelector::Subject(command.subject);
        forget.policy = DerivedPolicy::kForgetDerived;
        const absl::Status forgotten =
            ForgetInputs(forget, call, &scheduler, trail_.trail, entry_).status();
        EXPECT_TRUE(forgotten.ok() || absl::IsNotFound(forgotten)) << forgotten;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(DigestOf(entry_), FreshDigest(HistoryOf(entry_)));
  EXPECT_EQ(scheduler.num_waiting(), 0);
}

}  // namespace
}  // namespace lethe::testing
