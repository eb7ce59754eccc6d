// Goal: a stream that a kill broke goes on after the next start, wherever the kill came, and however often; the end of an
// answer stays where it was when the session goes on.
// Method: a child runs the stream and is ended at its n-th token, or when the loop asks for the n-th time whether to go
// on; the oracle is the same request in one piece in another session of the same world.
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <sys/wait.h>
#include <unistd.h>

#include "server/generation/durable_sink.h"
#include "tests/server/durable_world.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::SizeIs;

constexpr int64_t kTokens = 14;
constexpr char kHistory[] = "some history. ";
constexpr char kPrompt[] = "and then";
constexpr uint64_t kAnswerFirst = 1 + sizeof(kHistory) - 1 + sizeof(kPrompt) - 1;

class DurableResumeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(world_.Open());
    NewSession();
    RecordingSink sink;
    ASSERT_OK(Run(Command(), FakeCall(), &sink));
    whole_ = sink.VocabIds();
    ASSERT_THAT(whole_, SizeIs(kTokens));
    digest_ = world_.View(id_).digest;
    NewSession();
  }

  void NewSession() {
    id_ = world_.NewModelSession()->session_id;
    ASSERT_OK(world_.Append(id_, kHistory, "", ""));
  }
  static GenerateCommand Command() {
    GenerateCommand command = Prompt(kPrompt, kTokens);
    command.sampling.temperature = 1;
    command.stop = {"a stop string that never comes"};
    command.subject = "answers";
    command.request = Key("g1");
    return command;
  }
  absl::Status Run(const GenerateCommand& command, const Call& call, RecordingSink* recording) {
    const std::shared_ptr<SessionEntry> entry = world_.Find(id_);
    DurableSink sink(entry->journal.get(), recording);
    return lethe::Generate(command, call, world_.scheduler(), entry, &sink);
  }
  absl::Status Resume(uint64_t last_token_id, RecordingSink* recording) {
    GenerateCommand command = Command();
    command.sampling.seed = 99;  // a repeat does not know what the server drew
    command.last_token_id = last_token_id;
    return Run(command, FakeCall(), recording);
  }
  // Runs `command` in a process that ends without a word where `call` or the sink's on_token ends it; false: it was
  // not ended. The world is then started again.
  bool RunKilled(const GenerateCommand& command, const Call& call, RecordingSink* sink) {
    world_.Close();
    const pid_t child = fork();
    if (child == 0) {
      if (!world_.Open().ok()) _exit(1);
      _exit(Run(command, call, sink).ok() ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_THAT(WEXITSTATUS(status), ::testing::AnyOf(0, kKilled));
    EXPECT_OK(world_.Open());
    return WEXITSTATUS(status) == kKilled;
  }
  // At the n-th token.
  bool RunKilledAt(size_t num_tokens, const GenerateCommand& command) {
    RecordingSink sink;
    sink.on_token = [&] {
      if (sink.tokens.size() == num_tokens) _exit(kKilled);
    };
    return RunKilled(command, FakeCall(), &sink);
  }
  bool HoldsParameters() {
    const std::shared_ptr<SessionEntry> entry = world_.Find(id_);
    FairMutexLock lock(&entry->mutex);
    return entry->requests.DropSubject(Command().subject);
  }
  std::vector<int32_t> WholeFrom(size_t first) const {
    return {whole_.begin() + static_cast<std::ptrdiff_t>(first), whole_.end()};
  }

  static constexpr int kKilled = 77;
  DurableWorld world_;
  std::string id_;
  std::vector<int32_t> whole_;
  audit::Sha256Digest digest_{};
};

TEST_F(DurableResumeTest, AStreamGoesOnAfterAKillAtAnyToken) {
  for (size_t num_tokens = 1; num_tokens <= kTokens; ++num_tokens) {
    SCOPED_TRACE(absl::StrCat("killed at token ", num_tokens));
    ASSERT_TRUE(RunKilledAt(num_tokens, Command()));
    RecordingSink refused;
    EXPECT_EQ(ReasonOf(Run(Command(), FakeCall(), &refused)), "REQUEST_DONE");
    // Nothing delivered is lost: the last token's id is known.
    const uint64_t last = kAnswerFirst + num_tokens - 1;
    RecordingSink sink;
    ASSERT_OK(Resume(last, &sink));
    EXPECT_EQ(sink.started.at(0).resumed_after, last);
    EXPECT_EQ(sink.started.at(0).seed, Command().sampling.seed);
    EXPECT_EQ(sink.started.at(0).prompt_token_ids, (TokenIdRange{kAnswerFirst - 8, kAnswerFirst}));
    EXPECT_THAT(sink.VocabIds(), ElementsAreArray(WholeFrom(num_tokens)));
    EXPECT_EQ(world_.View(id_).digest, digest_);
    ASSERT_OK(world_.Open());
    EXPECT_EQ(world_.View(id_).digest, digest_);
    NewSession();
  }
}

TEST_F(DurableResumeTest, AStreamGoesOnAfterAKillBetweenAnyTwoSteps) {
  class EndingCall : public FakeCall {
   public:
    explicit EndingCall(int n) : n_(n) {}
    absl::Status Check() const override {
      if (--n_ == 0) _exit(kKilled);
      return absl::OkStatus();
    }

   private:
    mutable int n_;
  };
  int num_new = 0;
  int num_resumed = 0;
  for (int n = 1;; ++n) {
    SCOPED_TRACE(n);
    RecordingSink lost;
    if (!RunKilled(Command(), EndingCall(n), &lost)) break;
    RecordingSink sink;
    GenerateCommand again = Command();
    again.last_token_id = 0;
    ASSERT_OK(Run(again, FakeCall(), &sink));
    EXPECT_THAT(sink.VocabIds(), ElementsAreArray(whole_));
    EXPECT_EQ(world_.View(id_).digest, digest_);
    ++(sink.started.at(0).resumed_after.has_value() ? num_resumed : num_new);
    NewSession();
  }
  EXPECT_GE(num_new, 2);
  EXPECT_GE(num_resumed, kTokens);
}

TEST_F(DurableResumeTest, AResumedStreamThatIsKilledGoesOn) {
  ASSERT_TRUE(RunKilledAt(3, Command()));
  for (size_t num_tokens = 3; num_tokens < kTokens; num_tokens += 2) {
    GenerateCommand command = Command();
    command.last_token_id = kAnswerFirst + num_tokens - 1;
    if (num_tokens + 2 >= kTokens) break;
    ASSERT_TRUE(RunKilledAt(2, command)) << num_tokens;
  }
  RecordingSink sink;
  ASSERT_OK(Resume(kAnswerFirst + 4, &sink));
  EXPECT_THAT(sink.VocabIds(), ElementsAreArray(WholeFrom(5)));
  EXPECT_EQ(world_.View(id_).digest, digest_);
}

TEST_F(DurableResumeTest, ACutAnswerDoesNotTakeInWhatCameAfterIt) {
  // An answer of another request, without a prompt between them, is what could be taken for a part of it.
  for (const bool is_generated : {false, true}) {
    ASSERT_TRUE(RunKilledAt(5, Command()));
    if (is_generated) {
      ASSERT_OK(world_.Generate(id_, "", "", 2));
    } else {
      ASSERT_OK(world_.Append(id_, "more", "", ""));
    }
    const SessionView before = world_.View(id_);
    for (int restart = 0; restart < 3; ++restart) {
      RecordingSink sink;
      EXPECT_EQ(ReasonOf(Resume(kAnswerFirst + 4, &sink)), "NOT_RESUMABLE");
      EXPECT_EQ(ReasonOf(Resume(0, &sink)), "NOT_RESUMABLE");
      EXPECT_TRUE(world_.View(id_) == before);
      ASSERT_OK(world_.Open());
    }
    NewSession();
  }
}

TEST_F(DurableResumeTest, ACancelledAnswerEndsWhereItWasCancelled) {
  RecordingSink first;
  first.tokens_accepted_max = 5;
  EXPECT_THAT(Run(Command(), FakeCall(), &first), StatusIs(absl::StatusCode::kCancelled));
  ASSERT_OK(world_.Generate(id_, "", "", 2));
  const SessionView before = world_.View(id_);
  for (int restart = 0; restart < 3; ++restart) {
    ASSERT_OK(world_.Open());
    RecordingSink sink;
    EXPECT_EQ(ReasonOf(Resume(kAnswerFirst + 4, &sink)), "NOT_RESUMABLE") << restart;
    EXPECT_TRUE(world_.View(id_) == before);
  }
}

TEST_F(DurableResumeTest, AWholeAnswerIsSentAfterAnyNumberOfStarts) {
  RecordingSink first;
  ASSERT_OK(Run(Command(), FakeCall(), &first));
  for (int restart = 0; restart < 3; ++restart) {
    ASSERT_OK(world_.Open());
    ASSERT_OK(world_.Append(id_, "more", "", ""));
    RecordingSink sink;
    ASSERT_OK(Resume(kAnswerFirst + 3, &sink));
    EXPECT_THAT(sink.VocabIds(), ElementsAreArray(WholeFrom(4)));
    EXPECT_EQ(sink.finished.at(0).reason, FinishReason::kMaxTokens);
  }
}

TEST_F(DurableResumeTest, AForgetTakesWhatAStreamCouldGoOnWithFromTheStoreToo) {
  ASSERT_TRUE(RunKilledAt(5, Command()));
  ASSERT_OK(world_.Append(id_, "patient 17", "patient", ""));
  ASSERT_OK(world_.Forget(id_, "patient", "f1"));
  for (int restart = 0; restart < 2; ++restart) {
    RecordingSink sink;
    EXPECT_EQ(ReasonOf(Resume(kAnswerFirst + 4, &sink)), "NOT_RESUMABLE");
    EXPECT_EQ(ReasonOf(Run(Command(), FakeCall(), &sink)), "REQUEST_FORGOTTEN");
    ASSERT_OK(world_.Open());
  }
}

// A Forget while the prompt comes in, as one while tokens are drawn.
TEST_F(DurableResumeTest, AForgetInTheStreamHoldsOverAStart) {
  for (const bool in_prompt : {true, false}) {
    ASSERT_OK(world_.Append(id_, "patient 17", "patient", ""));
    RecordingSink first;
    const auto forget = [&] { ASSERT_OK(world_.Forget(id_, "patient", "f1")); };
    if (in_prompt) {
      first.on_started = forget;
    } else {
      first.on_token = [&] {
        if (first.tokens.size() == 3) forget();
      };
    }
    ASSERT_OK(Run(Command(), FakeCall(), &first));
    for (int restart = 0; restart < 2; ++restart) {
      RecordingSink sink;
      EXPECT_FALSE(HoldsParameters()) << restart;
      EXPECT_EQ(ReasonOf(Resume(0, &sink)), "NOT_RESUMABLE") << restart;
      EXPECT_EQ(ReasonOf(Run(Command(), FakeCall(), &sink)), "REQUEST_FORGOTTEN") << restart;
      ASSERT_OK(world_.Open());
    }
    NewSession();
  }
}

}  // namespace
}  // namespace lethe::testing
