// Goal: every event arrives once and in order, deltas that wait are joined, a slow client slows the
// stream, and a failed client's tokens are named.
// Method: sinks under the pipeline that block, fail or record on command; nothing is timed.
#include <atomic>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/generation/pipelined_sink.h"
#include "tests/server/serving_testing.h"

namespace lethe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

DeltaEvent DeltaOf(uint64_t token_id) {
  GeneratedTokenEvent token;
  token.token_id = token_id;
  return {std::to_string(token_id), std::to_string(token_id), {token}};
}

// Holds every delta until Open.
class GatedSink : public RecordingSink {
 public:
  bool Delta(const DeltaEvent& event) override {
    entered_ = true;
    MutexLock lock(&mutex_);
    while (!open_) opened_.Wait(&mutex_);
    return RecordingSink::Delta(event);
  }
  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    opened_.SignalAll();
  }
  void AwaitDelta() const {
    while (!entered_) std::this_thread::yield();
  }

 private:
  std::atomic<bool> entered_{false};
  Mutex mutex_;
  CondVar opened_;
  bool open_ = false;
};

TEST(PipelinedSinkTest, PassesEverythingOnInOrder) {
  RecordingSink inner;
  PipelinedSink sink(&inner);
  ASSERT_TRUE(sink.Started({}));
  std::string expected;
  for (uint64_t id = 1; id <= 200; ++id) {
    ASSERT_TRUE(sink.Delta(DeltaOf(id)));
    expected += std::to_string(id);
    if (id != 100) continue;
    ASSERT_TRUE(sink.ForgetNotice({1, 2}));
  }
  ASSERT_TRUE(sink.Finished({}));
  ASSERT_TRUE(sink.Flush());
  EXPECT_EQ(inner.Raw(), expected);
  EXPECT_EQ(inner.tokens.size(), 200u);
  EXPECT_EQ(inner.notices.size(), 1u);
  EXPECT_EQ(inner.finished.size(), 1u);
  EXPECT_THAT(sink.UnsentTokens(), IsEmpty());
}

TEST(PipelinedSinkTest, JoinsWhatWaits) {
  GatedSink inner;
  PipelinedSink sink(&inner);
  ASSERT_TRUE(sink.Delta(DeltaOf(1)));
  inner.AwaitDelta();
  for (uint64_t id = 2; id <= 20; ++id) ASSERT_TRUE(sink.Delta(DeltaOf(id)));
  inner.Open();
  ASSERT_TRUE(sink.Flush());
  ASSERT_EQ(inner.deltas.size(), 2u);
  EXPECT_EQ(inner.deltas[1].tokens.size(), 19u);
}

TEST(PipelinedSinkTest, ASlowClientSlowsTheStream) {
  GatedSink inner;
  PipelinedSink sink(&inner);
  std::atomic<uint64_t> num_taken{0};
  constexpr uint64_t kMany = 4 * PipelinedSink::kMaxWaitingTokens;
  std::thread stream([&] {
    for (uint64_t id = 1; id <= kMany; ++id) {
      EXPECT_TRUE(sink.Delta(DeltaOf(id)));
      ++num_taken;
    }
  });
  inner.AwaitDelta();
  // One is being sent, the queue is full, and no more is taken however long the client sleeps.
  while (num_taken < PipelinedSink::kMaxWaitingTokens) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LE(num_taken, 2 * PipelinedSink::kMaxWaitingTokens);
  inner.Open();
  stream.join();
  ASSERT_TRUE(sink.Flush());
  EXPECT_EQ(inner.tokens.size(), kMany);
}

TEST(PipelinedSinkTest, NamesTheTokensThatAFailedClientDidNotGet) {
  RecordingSink inner;
  inner.tokens_accepted_max = 1;
  PipelinedSink sink(&inner);
  ASSERT_TRUE(sink.Delta(DeltaOf(1)));
  ASSERT_TRUE(sink.Flush());
  static_cast<void>(sink.Delta(DeltaOf(2)));
  static_cast<void>(sink.Delta(DeltaOf(3)));
  EXPECT_FALSE(sink.Flush());
  EXPECT_FALSE(sink.Delta(DeltaOf(4)));  // refused: its caller knows
  const std::vector<uint64_t> unsent = sink.UnsentTokens();
  ASSERT_FALSE(unsent.empty());
  EXPECT_EQ(unsent.front(), 2u);
  EXPECT_THAT(inner.tokens, ::testing::SizeIs(1));
}

TEST(PipelinedSinkTest, MayBeDroppedWithEventsWaiting) {
  GatedSink inner;
  {
    PipelinedSink sink(&inner);
    ASSERT_TRUE(sink.Delta(DeltaOf(1)));
    inner.AwaitDelta();
    ASSERT_TRUE(sink.Delta(DeltaOf(2)));
    EXPECT_THAT(sink.UnsentTokens(), ElementsAre(2u));
    inner.Open();
  }
  EXPECT_THAT(inner.tokens, ::testing::SizeIs(::testing::AnyOf(1, 2)));
}

}  // namespace
}  // namespace lethe::testing
