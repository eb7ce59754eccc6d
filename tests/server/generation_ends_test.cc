// Goal: how a stream ends at the model's end of text, and how it shows that it still works.
// Method: a tiny random model at a high temperature, with a seed whose draws reach the end-of-text
// token; a prompt whose evaluation is held up for longer than the progress interval.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/generation/decode_loop.h"
#include "server/generation/ingest.h"
#include "tests/server/serving_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int32_t kEndOfText = 0;  // TinyConfig

class GenerationEndsTest : public ::testing::Test {
 protected:
  absl::Status Run(const GenerateCommand& command, const Call& call, RecordingSink* sink) {
    return Generate(command, call, &scheduler_, NewEntry(&registry_), sink);
  }

  FakeCall call_;
  ComputeScheduler scheduler_{1};
  SessionRegistry registry_{10};
};

TEST_F(GenerationEndsTest, EndOfTextEndsTheStreamUnlessIgnored) {
  GenerateCommand command = Prompt("a question", 400);
  command.sampling.temperature = 10;
  std::vector<int32_t> drawn;
  size_t end = 0;
  for (uint64_t seed = 1; end == 0 || end >= drawn.size(); ++seed) {
    ASSERT_LT(seed, 20u);
    command.sampling.seed = seed;
    drawn = Continuation(command.prompt, command.sampling, 400);
    end = static_cast<size_t>(std::find(drawn.begin(), drawn.end(), kEndOfText) - drawn.begin());
  }
  RecordingSink ignoring;
  ASSERT_OK(Run(command, call_, &ignoring));
  EXPECT_EQ(ignoring.finished.at(0).reason, FinishReason::kMaxTokens);
  EXPECT_THAT(ignoring.VocabIds(), ElementsAreArray(drawn));

  command.ignore_end_of_text = false;
  RecordingSink sink;
  ASSERT_OK(Run(command, call_, &sink));
  ASSERT_THAT(sink.finished, SizeIs(1));
  EXPECT_EQ(sink.finished[0].reason, FinishReason::kEndOfText);
  EXPECT_THAT(sink.finished[0].matched_stop, IsEmpty());
  drawn.resize(end + 1);
  EXPECT_THAT(sink.VocabIds(), ElementsAreArray(drawn));
  EXPECT_EQ(sink.finished[0].usage.num_generated_tokens, static_cast<int64_t>(end + 1));
  // The token is told and retained; it has no text.
  EXPECT_EQ(sink.Raw().size(), end);
  EXPECT_EQ(sink.Raw(), ignoring.Raw().substr(0, end));
}

// Takes longer than the interval before one piece of the prompt.
class SlowCall : public FakeCall {
 public:
  absl::Status Check() const override {
    if (num_checks_++ == 3) {
      std::this_thread::sleep_for(kProgressInterval + std::chrono::milliseconds(50));
    }
    return FakeCall::Check();
  }

 private:
  mutable std::atomic<int> num_checks_{0};
};

TEST_F(GenerationEndsTest, ALongPromptShowsProgress) {
  const GenerateCommand command = Prompt(std::string(4 * kIngestPieceTokens, 'p'), 1);
  RecordingSink fast;
  const auto start = std::chrono::steady_clock::now();
  ASSERT_OK(Run(command, call_, &fast));
  if (std::chrono::steady_clock::now() - start < kProgressInterval) {
    EXPECT_THAT(fast.progress, IsEmpty());
  }
  RecordingSink slow;
  ASSERT_OK(Run(command, SlowCall(), &slow));
  ASSERT_THAT(slow.progress, Not(IsEmpty()));
  EXPECT_EQ(slow.progress[0].num_prompt_tokens, 4 * kIngestPieceTokens);
  EXPECT_EQ(slow.progress[0].num_prompt_tokens_done % kIngestPieceTokens, 0);
  EXPECT_GT(slow.progress[0].num_prompt_tokens_done, 0);
  EXPECT_LT(slow.progress[0].num_prompt_tokens_done, 4 * kIngestPieceTokens);
  EXPECT_EQ(slow.VocabIds(), fast.VocabIds());
}

}  // namespace
}  // namespace lethe::testing
