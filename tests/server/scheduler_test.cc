// Goal: at most N evaluations run at once, tenants in turn and each one's in order of arrival; a gone client's turn is passed on;
// a fair lock lets a waiting Forget in between two tokens.
// Method: threads that record what they saw, and single-threaded cases with exact expectations.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/scheduler/compute_scheduler.h"
#include "server/scheduler/fair_mutex.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

class PlainCall : public Call {
 public:
  explicit PlainCall(absl::Status status = absl::OkStatus()) : status_(std::move(status)) {}
  absl::Status Check() const override { return status_; }

 private:
  const absl::Status status_;
};

void WaitUntil(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(ComputeSchedulerTest, NeverMoreThanItsSlotsAtOnce) {
  ComputeScheduler scheduler(3);
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 12; ++i) {
    threads.emplace_back([&] {
      const PlainCall call;
      for (int round = 0; round < 200; ++round) {
        const auto slot = scheduler.Acquire(call);
        ASSERT_TRUE(slot.ok());
        const int now = ++running;
        int seen = most.load();
        while (now > seen && !most.compare_exchange_weak(seen, now)) {
        }
        --running;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most.load(), 3);
  EXPECT_EQ(scheduler.num_waiting(), 0);
}

TEST(ComputeSchedulerTest, FirstComeFirstServed) {
  ComputeScheduler scheduler(1);
  const PlainCall call;
  std::optional<ComputeSlot> held;
  held.emplace(*scheduler.Acquire(call));
  std::vector<int> order;
  std::vector<std::thread> threads;
  for (int i = 0; i < 5; ++i) {
    threads.emplace_back([&, i] {
      const auto slot = scheduler.Acquire(call);
      order.push_back(i);  // one slot: nobody else writes
    });
    WaitUntil([&] { return scheduler.num_waiting() == i + 1; });
  }
  held.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST(ComputeSchedulerTest, GoneClientIsDroppedAtItsTurnAndPassesItOn) {
  ComputeScheduler scheduler(1);
  EXPECT_THAT(scheduler.Acquire(PlainCall(absl::CancelledError("gone"))),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(scheduler.Acquire(PlainCall(absl::DeadlineExceededError("late"))),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_OK(scheduler.Acquire(PlainCall()));
}

TEST(ComputeSchedulerTest, YieldLetsEveryWaiterGoFirst) {
  ComputeScheduler scheduler(1);
  const PlainCall call;
  std::optional<ComputeSlot> slot;
  slot.emplace(*scheduler.Acquire(call));
  EXPECT_OK(slot->Yield(call));  // nobody waits
  std::vector<int> order;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      const auto held = scheduler.Acquire(call);
      order.push_back(i);
    });
    WaitUntil([&] { return scheduler.num_waiting() == i + 1; });
  }
  EXPECT_OK(slot->Yield(call));
  order.push_back(3);  // holds the slot again
  slot.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2, 3));
}

class CallOf : public PlainCall {
 public:
  explicit CallOf(const std::string& tenant) : principal_{tenant, "caller", kAllRoles} {}
  const Principal& principal() const override { return principal_; }

 private:
  const Principal principal_;
};

// The order in which waiters of these tenants, arrived in this order, get the one slot after a caller of "first".
std::vector<std::string> OrderOf(const std::vector<std::string>& arrivals) {
  ComputeScheduler scheduler(1);
  std::optional<ComputeSlot> held;
  held.emplace(*scheduler.Acquire(CallOf("first")));
  std::vector<std::string> order;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < arrivals.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto slot = scheduler.Acquire(CallOf(arrivals[i]));
      order.push_back(arrivals[i]);
    });
    WaitUntil([&] { return scheduler.num_waiting() == static_cast<int>(i) + 1; });
  }
  held.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(scheduler.num_waiting(), 0);
  return order;
}

TEST(ComputeSchedulerTest, ATenantOfManyStreamsHasOneTurnOfEach) {
  std::vector<std::string> order = OrderOf({"many", "many", "many", "many", "one", "two", "two"});
  std::sort(order.begin(), order.begin() + 3);  // none of them has had a turn before
  EXPECT_THAT(order, ::testing::ElementsAre("many", "one", "two", ::testing::_, ::testing::_,
                                            "many", "many"));
  std::sort(order.begin() + 3, order.begin() + 5);
  EXPECT_EQ(order[3], "many");
  EXPECT_EQ(order[4], "two");
}

TEST(ComputeSchedulerTest, WhoHadItsTurnLongestAgoIsNext) {
  EXPECT_THAT(OrderOf({"first", "first", "other"}),
              ::testing::ElementsAre("other", "first", "first"));
}

TEST(ComputeSchedulerTest, YieldPassesTheSlotToAnotherTenantAndGetsItBack) {
  ComputeScheduler scheduler(1);
  const CallOf mine("mine");
  std::optional<ComputeSlot> slot;
  slot.emplace(*scheduler.Acquire(mine));
  std::atomic<int> num_turns{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const auto held = scheduler.Acquire(CallOf("other"));
      ++num_turns;
    });
  }
  WaitUntil([&] { return scheduler.num_waiting() == 3; });
  EXPECT_OK(slot->Yield(mine));  // one turn of the other's three
  EXPECT_EQ(num_turns.load(), 1);
  slot.reset();
  for (std::thread& thread : threads) thread.join();
}

TEST(ComputeSchedulerTest, YieldOfAGoneClientKeepsTheSlotUntilItIsDropped) {
  ComputeScheduler scheduler(1);
  {
    auto slot = scheduler.Acquire(PlainCall());
    ASSERT_OK(slot);
    EXPECT_THAT(slot->Yield(PlainCall(absl::CancelledError("gone"))),
                StatusIs(absl::StatusCode::kCancelled));
  }
  EXPECT_OK(scheduler.Acquire(PlainCall()));
}

TEST(FairMutexTest, WaiterGetsInBeforeTheHolderGetsItAgain) {
  FairMutex mutex;
  std::atomic<bool> done{false};
  mutex.Lock();
  std::thread waiter([&] {
    FairMutexLock lock(&mutex);
    done = true;
  });
  WaitUntil([&] { return mutex.num_waiting() == 1; });
  mutex.Unlock();
  mutex.Lock();  // queues behind the waiter
  EXPECT_TRUE(done.load());
  mutex.Unlock();
  waiter.join();
}

TEST(FairMutexTest, Excludes) {
  FairMutex mutex;
  int counter = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        FairMutexLock lock(&mutex);
        ++counter;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter, 2000);
}

}  // namespace
}  // namespace lethe::testing
