// Goal: a long Forget stops where its client goes away, and leaves everything as it was; between its
// chunks other sessions compute; who waits for its session takes no compute slot.
// Method: calls that do something at their n-th check, on one compute slot.
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/certification/forgetter.h"
#include "server/certification/partition.h"
#include "server/generation/ingest.h"
#include "tests/server/serving_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

constexpr int kNumInputs = 500;

// Runs `action` at every check, which it is told the number of; its status is the answer.
class CallWithAction : public Call {
 public:
  explicit CallWithAction(std::function<absl::Status(int check)> action)
      : action_(std::move(action)) {}
  absl::Status Check() const override { return action_(num_checks_++); }
  int num_checks() const { return num_checks_; }

 private:
  const std::function<absl::Status(int check)> action_;
  mutable std::atomic<int> num_checks_{0};
};

class ForgetSharingTest : public ::testing::Test {
 protected:
  ForgetSharingTest() { Append(entry_, std::string(kNumInputs, 'x')); }

  void Append(const std::shared_ptr<SessionEntry>& entry, const std::string& text) {
    ASSERT_OK(AppendInputs({TinyModel()->Tokenize(text), "", {}}, call_, &scheduler_, entry));
  }
  absl::StatusOr<ForgetReceipt> ForgetSecond(const Call& call) {
    ForgetCommand command;
    command.selector = ForgetSelector::Ids({2});
    command.policy = DerivedPolicy::kForgetDerived;
    return ForgetInputs(command, call, &scheduler_, trail_.trail, entry_);
  }
  // Nothing of the session or the log differs from before.
  void ExpectUntouched(const audit::Sha256Digest& digest) {
    EXPECT_EQ(DigestOf(entry_), digest);
    EXPECT_EQ(trail_.data->log()->num_leaves(), 0u);
    EXPECT_EQ(entry_->Info().num_forgotten, 0);
    EXPECT_EQ(entry_->Info().audit_seq, 0u);
  }

  FakeCall call_;
  ComputeScheduler scheduler_{1};
  SessionRegistry registry_{10};
  std::shared_ptr<SessionEntry> entry_ = NewEntry(&registry_);
  std::shared_ptr<SessionEntry> other_ = NewEntry(&registry_);
  TestTrail trail_;
};

TEST_F(ForgetSharingTest, AClientThatGoesAwayAtAnyCheckChangesNothing) {
  const auto digest = DigestOf(entry_);
  int at = 0;
  for (;; ++at) {
    const absl::Status end =
        at % 2 == 0 ? absl::CancelledError("gone") : absl::DeadlineExceededError("late");
    const CallWithAction call([&](int check) { return check == at ? end : absl::OkStatus(); });
    const auto receipt = ForgetSecond(call);
    if (receipt.ok()) break;
    ASSERT_EQ(receipt.status().code(), end.code());
    ExpectUntouched(digest);
  }
  // Every chunk of the history that is evaluated again asks.
  EXPECT_GE(at, kNumInputs / kChunkTokens);
  EXPECT_EQ(DigestOf(entry_), FreshDigest(HistoryOf(entry_)));
}

TEST_F(ForgetSharingTest, AnotherSessionComputesBetweenItsChunks) {
  constexpr int kFirstCheckWithOther = 3;
  std::thread other;
  std::atomic<bool> appended{false};
  bool appended_at_last_check = false;
  const CallWithAction call([&](int check) {
    if (check == kFirstCheckWithOther) {
      other = std::thread([&] {
        Append(other_, "hello");
        appended = true;
      });
    }
    // The Forget holds the only slot here, so the other waits for a turn or has had all of them.
    // Whoever is slow is waited for: the order of turns decides, not the speed of a thread.
    if (check >= kFirstCheckWithOther) {
      while (!appended && scheduler_.num_waiting() == 0) std::this_thread::yield();
    }
    appended_at_last_check = appended;
    return absl::OkStatus();
  });
  const auto receipt = ForgetSecond(call);
  other.join();
  ASSERT_OK(receipt);
  // An append takes two turns, to reserve and to evaluate.
  EXPECT_GT(call.num_checks(), kFirstCheckWithOther + 2);
  EXPECT_TRUE(appended_at_last_check);
  EXPECT_EQ(DigestOf(entry_), FreshDigest(HistoryOf(entry_)));
}

TEST_F(ForgetSharingTest, WhoWaitsForItsSessionTakesNoSlot) {
  std::vector<std::thread> readers;
  std::atomic<int> num_started{0};
  {
    FairMutexLock lock(&entry_->mutex);  // as a Forget that waits for its turn
    for (int i = 0; i < 3; ++i) {
      readers.emplace_back([&] {
        ++num_started;
        EXPECT_OK(ListPartition({"", 10, ""}, call_, &scheduler_, entry_));
      });
    }
    while (num_started < 3) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Append(other_, "hello");  // would wait for ever
  }
  for (std::thread& reader : readers) reader.join();
}

// A stream on a fork waits for the slot with the fork locked, and the Forget wants that lock.
TEST_F(ForgetSharingTest, AForkInTheMiddleOfAStepIsWaitedForWithoutASlot) {
  for (int round = 0; round < 3; ++round) {
    std::thread stream([&] {
      GenerateCommand command = Prompt("abc", 30);
      command.remember = false;
      RecordingSink sink;
      EXPECT_OK(Generate(command, call_, &scheduler_, entry_, &sink));
    });
    ForgetCommand command;
    command.selector = ForgetSelector::Ids({static_cast<uint64_t>(round + 1)});
    command.policy = DerivedPolicy::kForgetDerived;
    EXPECT_OK(ForgetInputs(command, call_, &scheduler_, trail_.trail, entry_));
    stream.join();
  }
}

}  // namespace
}  // namespace lethe::testing
