// ResumeTest: streams of a tiny model that are cut and go on, and the same in one piece.
//
// Threads: compatible.
#ifndef LETHE_TESTS_SERVER_RESUME_TESTING_H_
#define LETHE_TESTS_SERVER_RESUME_TESTING_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/certification/forgetter.h"
#include "server/error/error_info.h"
#include "server/generation/ingest.h"
#include "tests/server/serving_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {

inline constexpr int64_t kAnswerTokens = 40;

inline std::string ReasonOf(const absl::Status& status) {
  return GetErrorInfo(status).value_or(ErrorInfo{}).reason;
}

inline std::string TextOf(const RecordingSink& sink) {
  std::string text;
  for (const DeltaEvent& delta : sink.deltas) text += delta.text;
  return text;
}

inline uint64_t LastOf(const RecordingSink& sink) {
  return sink.tokens.empty() ? 0 : sink.tokens.back().token_id;
}

// What a client has of an answer.
struct Got {
  std::string text;
  std::string raw;
  std::vector<int32_t> vocab_ids;

  void Add(const RecordingSink& sink) {
    text += TextOf(sink);
    raw += sink.Raw();
    const std::vector<int32_t> more = sink.VocabIds();
    vocab_ids.insert(vocab_ids.end(), more.begin(), more.end());
  }
};

class ResumeTest : public ::testing::Test {
 protected:
  absl::Status Run(const GenerateCommand& command, RecordingSink* sink) {
    return Generate(command, call_, &scheduler_, entry_, sink);
  }
  absl::Status Resume(GenerateCommand command, uint64_t last_token_id, RecordingSink* sink) {
    command.last_token_id = last_token_id;
    // What the server drew for the first run: a repeat that leaves the seed to it has another one here.
    command.sampling.seed += 1000;
    return Run(command, sink);
  }
  absl::Status Append(const std::string& text, const std::string& subject) {
    return AppendInputs({TinyModel()->Tokenize(text), subject, {}}, call_, &scheduler_, entry_)
        .status();
  }
  absl::Status Forget(const std::string& subject) {
    ForgetCommand command;
    command.selector = ForgetSelector::Subject(subject);
    command.policy = DerivedPolicy::kKeepAndReport;
    const FakeCall call;
    return ForgetInputs(command, call, &scheduler_, trail_.trail, entry_).status();
  }
  // A new session with a history of its own.
  void NewSession() {
    entry_ = NewEntry(&registry_);
    ASSERT_OK(Append("some history. ", ""));
  }
  GenerateCommand Command() {
    GenerateCommand command = Prompt("a question", kAnswerTokens);
    command.sampling.temperature = 1.5;
    command.sampling.repetition_penalty = 1.2;
    command.sampling.seed = seed_;
    command.subject = "answers";
    command.request = Key("r1");
    return command;
  }
  // A command whose answer has a whole character of several bytes, an invalid byte, and parts that a stop string keeps
  // back; `ends`: and one that ends it.
  GenerateCommand WithStops(bool ends) {
    for (seed_ = 1;; ++seed_) {
      NewSession();
      RecordingSink sink;
      EXPECT_OK(Run(Command(), &sink));
      const std::string raw = sink.Raw();
      if (!HasBothKinds(TextOf(sink))) continue;
      GenerateCommand command = Command();
      // Comes up but for its last byte.
      std::string nearly = raw.substr(6, 9);
      nearly.back() = static_cast<char>(nearly.back() ^ 1);
      // The last one is kept back to the end.
      command.stop = {nearly, raw.substr(raw.size() - 3) + "never"};
      if (ends) command.stop.push_back(raw.substr(30, 4));
      return command;
    }
  }
  // An invalid byte is U+FFFD in the text; what else has several bytes there is a character.
  static bool HasBothKinds(std::string text) {
    const std::string replacement = "\xEF\xBF\xBD";
    bool was_replaced = false;
    for (size_t at = text.find(replacement); at != std::string::npos; at = text.find(replacement)) {
      text.erase(at, replacement.size());
      was_replaced = true;
    }
    return was_replaced && std::any_of(text.begin(), text.end(),
                                       [](char c) { return static_cast<uint8_t>(c) >= 0xC2; });
  }

  // The answer in one piece, on a fresh session.
  struct Whole {
    Got got;
    StartedEvent started;
    FinishedEvent finished;
    audit::Sha256Digest digest{};
    std::vector<uint64_t> token_ids;
  };
  Whole RunWhole(const GenerateCommand& command) {
    NewSession();
    RecordingSink sink;
    EXPECT_OK(Run(command, &sink));
    Whole whole;
    whole.got.Add(sink);
    whole.started = sink.started.at(0);
    whole.finished = sink.finished.at(0);
    whole.digest = DigestOf(entry_);
    for (const GeneratedTokenEvent& token : sink.tokens) whole.token_ids.push_back(token.token_id);
    return whole;
  }
  void ExpectWhole(const Got& got, const RecordingSink& last, const Whole& whole) {
    EXPECT_EQ(got.raw, whole.got.raw);
    EXPECT_EQ(got.text, whole.got.text);
    EXPECT_THAT(got.vocab_ids, ::testing::ElementsAreArray(whole.got.vocab_ids));
    ASSERT_THAT(last.finished, ::testing::SizeIs(1));
    EXPECT_EQ(last.finished[0].reason, whole.finished.reason);
    EXPECT_EQ(last.finished[0].matched_stop, whole.finished.matched_stop);
    EXPECT_EQ(last.finished[0].num_invalid_utf8, whole.finished.num_invalid_utf8);
    EXPECT_EQ(last.finished[0].usage.num_prompt_tokens, whole.finished.usage.num_prompt_tokens);
    EXPECT_EQ(last.finished[0].usage.num_generated_tokens,
              whole.finished.usage.num_generated_tokens);
    ASSERT_THAT(last.started, ::testing::SizeIs(1));
    EXPECT_EQ(last.started[0].seed, whole.started.seed);
    EXPECT_EQ(last.started[0].prompt_token_ids, whole.started.prompt_token_ids);
    EXPECT_EQ(last.started[0].num_context_tokens, whole.started.num_context_tokens);
    EXPECT_EQ(DigestOf(entry_), whole.digest);
    EXPECT_EQ(DigestOf(entry_), FreshDigest(HistoryOf(entry_)));
  }

  // Cuts the stream when the sink has so many tokens.
  using Cut = std::function<void(int64_t num_tokens, RecordingSink* sink)>;
  void CutEverywhere(const GenerateCommand& command, const Cut& cut) {
    const Whole whole = RunWhole(command);
    const auto count = static_cast<int64_t>(whole.token_ids.size());
    for (int64_t num_tokens = 0; num_tokens <= count; ++num_tokens) {
      SCOPED_TRACE(absl::StrCat("cut after ", num_tokens, " tokens"));
      NewSession();
      RecordingSink first;
      cut(num_tokens, &first);
      Run(command, &first).IgnoreError();
      call_.cancelled = false;
      call_.stop = false;
      ASSERT_LE(static_cast<int64_t>(first.tokens.size()), count);
      Got got;
      got.Add(first);
      RecordingSink second;
      ASSERT_OK(Resume(command, LastOf(first), &second));
      got.Add(second);
      ASSERT_THAT(second.started, ::testing::SizeIs(1));
      EXPECT_EQ(second.started[0].resumed_after, LastOf(first));
      ExpectWhole(got, second, whole);
    }
  }

  uint64_t seed_ = 1;
  FakeCall call_;
  ComputeScheduler scheduler_{1};
  SessionRegistry registry_{1000};
  std::shared_ptr<SessionEntry> entry_;
  TestTrail trail_;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_SERVER_RESUME_TESTING_H_
