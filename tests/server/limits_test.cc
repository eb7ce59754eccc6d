// Goal: every limit of server/limits holds at its number and names itself, one tenant's use leaves another's share alone, and
// streams that wait run in order or leave.
// Method: a bucket with a clock of our own; calls of threads, which wait for conditions and never for a time.
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/error/error_info.h"
#include "server/limits/call_admission.h"
#include "server/limits/request_rate.h"

namespace lethe {
namespace {

class TenantCall final : public Call {
 public:
  explicit TenantCall(std::string tenant) { principal_.tenant = std::move(tenant); }
  absl::Status Check() const override {
    return gone_ ? absl::CancelledError("the client went away") : absl::OkStatus();
  }
  const Principal& principal() const override { return principal_; }
  void Leave() { gone_ = true; }

 private:
  Principal principal_;
  std::atomic<bool> gone_{false};
};

std::map<std::string, std::string> MetadataOf(const absl::Status& status) {
  const ErrorInfo info = ErrorInfoOf(status);
  return {info.metadata.begin(), info.metadata.end()};
}

std::string ReasonOf(const absl::Status& status) { return ErrorInfoOf(status).reason; }

TEST(RequestRateTest, ABurstPassesThenTheRate) {
  RequestRate rate(10);
  int64_t now_us = 5'000'000;
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(rate.Take("a", now_us).ok()) << i;
  const absl::Status refused = rate.Take("a", now_us);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "TOO_MANY_REQUESTS");
  EXPECT_EQ(MetadataOf(refused)["limit"], "tenant-requests-per-second");
  EXPECT_EQ(MetadataOf(refused)["max"], "10");
  EXPECT_EQ(MetadataOf(refused)["retry_after_ms"], "100");
  EXPECT_THAT(std::string(refused.message()),
              ::testing::HasSubstr("--tenant-requests-per-second 10"));
  now_us += 99'999;
  EXPECT_FALSE(rate.Take("a", now_us).ok());
  EXPECT_TRUE(rate.Take("a", now_us + 1).ok());
  EXPECT_FALSE(rate.Take("a", now_us + 1).ok());
}

TEST(RequestRateTest, TenantsHaveBucketsOfTheirOwn) {
  RequestRate rate(1);
  EXPECT_TRUE(rate.Take("a", 0).ok());
  EXPECT_TRUE(rate.Take("a", 0).ok());
  EXPECT_FALSE(rate.Take("a", 0).ok());
  EXPECT_TRUE(rate.Take("b", 0).ok());
}

TEST(RequestRateTest, ALongRestFillsTheBucketOnce) {
  RequestRate rate(1'000'000);
  EXPECT_TRUE(rate.Take("a", 0).ok());
  int64_t passed = 0;
  while (rate.Take("a", std::numeric_limits<int64_t>::max()).ok()) ++passed;
  EXPECT_EQ(passed, 2'000'000);
}

TEST(RequestRateTest, AClockThatStandsStillOrGoesBackBringsNothing) {
  RequestRate rate(1);
  EXPECT_TRUE(rate.Take("a", 10'000'000).ok());
  EXPECT_TRUE(rate.Take("a", 9'000'000).ok());
  EXPECT_FALSE(rate.Take("a", 10'000'000).ok());
}

TEST(RequestRateTest, ZeroIsNoLimit) {
  RequestRate rate(0);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(rate.Take("a", 0).ok());
}

// A stream that asks in a thread of its own; the answer is there once the thread has ended.
class Asker {
 public:
  Asker(CallAdmission* admission, const std::string& tenant)
      : call_(tenant), thread_([this, admission] {
          auto admitted = admission->Admit(CallKind::kStream, call_);
          status_ = admitted.status();
          if (admitted.ok()) admitted_ = std::make_unique<AdmittedCall>(*std::move(admitted));
          answered_ = true;
        }) {}
  ~Asker() {
    if (thread_.joinable()) thread_.join();
  }
  absl::Status Wait() {
    if (thread_.joinable()) thread_.join();
    return status_;
  }
  bool answered() const { return answered_; }
  void End() { admitted_ = nullptr; }
  TenantCall& call() { return call_; }

 private:
  TenantCall call_;
  absl::Status status_;
  std::unique_ptr<AdmittedCall> admitted_;
  std::atomic<bool> answered_{false};
  std::thread thread_;
};

void AwaitWaiting(const CallAdmission& admission, int64_t count) {
  while (admission.counts().waiting != count) std::this_thread::yield();
}

Limits Few() {
  Limits limits;
  limits.streams = 2;
  limits.tenant_streams = 2;
  limits.queue = 2;
  limits.queue_seconds = 3600;
  limits.tenant_requests_per_second = 0;
  return limits;
}

TEST(CallAdmissionTest, StreamsWaitInOrderAndRunWhenOneEnds) {
  CallAdmission admission(Few());
  Asker a(&admission, "t");
  Asker b(&admission, "t");
  EXPECT_TRUE(a.Wait().ok());
  EXPECT_TRUE(b.Wait().ok());
  Asker c(&admission, "t");
  AwaitWaiting(admission, 1);
  Asker d(&admission, "t");
  AwaitWaiting(admission, 2);
  EXPECT_EQ(admission.counts().streams, 2);
  a.End();
  EXPECT_TRUE(c.Wait().ok());
  EXPECT_FALSE(d.answered());
  b.End();
  EXPECT_TRUE(d.Wait().ok());
  c.End();
  d.End();
  EXPECT_EQ(admission.counts().calls, 0);
  EXPECT_EQ(admission.counts().streams, 0);
}

TEST(CallAdmissionTest, AFullQueueRefusesAndSaysHowLongItIs) {
  CallAdmission admission(Few());
  Asker a(&admission, "t");
  Asker b(&admission, "t");
  EXPECT_TRUE(a.Wait().ok() && b.Wait().ok());
  Asker c(&admission, "t");
  Asker d(&admission, "t");
  AwaitWaiting(admission, 2);
  const TenantCall call("t");
  const absl::Status refused = admission.Admit(CallKind::kStream, call).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReasonOf(refused), "QUEUE_FULL");
  EXPECT_EQ(MetadataOf(refused)["limit"], "queue");
  EXPECT_EQ(MetadataOf(refused)["max"], "2");
  EXPECT_EQ(MetadataOf(refused)["got"], "3");
  a.End();
  b.End();
}

TEST(CallAdmissionTest, WhoWaitsTooLongIsRefused) {
  Limits limits = Few();
  limits.queue_seconds = 0;
  CallAdmission admission(limits);
  Asker a(&admission, "t");
  Asker b(&admission, "t");
  EXPECT_TRUE(a.Wait().ok() && b.Wait().ok());
  Asker c(&admission, "t");
  EXPECT_EQ(ReasonOf(c.Wait()), "QUEUE_WAIT");
  EXPECT_EQ(admission.counts().waiting, 0);
}

TEST(CallAdmissionTest, AClientThatLeavesTheQueueMakesRoomInIt) {
  CallAdmission admission(Few());
  Asker a(&admission, "t");
  Asker b(&admission, "t");
  EXPECT_TRUE(a.Wait().ok() && b.Wait().ok());
  Asker c(&admission, "t");
  Asker d(&admission, "t");
  AwaitWaiting(admission, 2);
  c.call().Leave();
  EXPECT_TRUE(absl::IsCancelled(c.Wait()));
  AwaitWaiting(admission, 1);
  a.End();
  EXPECT_TRUE(d.Wait().ok());
}

TEST(CallAdmissionTest, ATenantAtItsShareLetsAnotherPass) {
  Limits limits = Few();
  limits.tenant_streams = 1;
  CallAdmission admission(limits);
  Asker a(&admission, "greedy");
  EXPECT_TRUE(a.Wait().ok());
  Asker b(&admission, "greedy");
  AwaitWaiting(admission, 1);
  Asker c(&admission, "modest");
  EXPECT_TRUE(c.Wait().ok());
  EXPECT_FALSE(b.answered());
  a.End();
  EXPECT_TRUE(b.Wait().ok());
}

TEST(CallAdmissionTest, ATenantsCallsAreBoundedAndItsErasuresAreNotAmongThem) {
  Limits limits = Few();
  limits.tenant_calls = 1;
  CallAdmission admission(limits);
  const TenantCall call("t");
  {
    const auto first = admission.Admit(CallKind::kUnary, call);
    ASSERT_TRUE(first.ok());
    for (const CallKind kind : {CallKind::kUnary, CallKind::kStream}) {
      const absl::Status refused = admission.Admit(kind, call).status();
      EXPECT_EQ(ReasonOf(refused), "TOO_MANY_CALLS");
      EXPECT_EQ(MetadataOf(refused)["limit"], "tenant-calls");
    }
    std::vector<AdmittedCall> erasures;
    for (int64_t i = 0; i < CallAdmission::kErasures; ++i) {
      auto admitted = admission.Admit(CallKind::kErasure, call);
      ASSERT_TRUE(admitted.ok());
      erasures.push_back(*std::move(admitted));
    }
    EXPECT_EQ(ReasonOf(admission.Admit(CallKind::kErasure, call).status()), "TOO_MANY_CALLS");
    EXPECT_TRUE(admission.Admit(CallKind::kUnary, TenantCall("other")).ok());
  }
  EXPECT_EQ(admission.counts().calls, 0);
  EXPECT_TRUE(admission.Admit(CallKind::kUnary, call).ok());
}

TEST(CallAdmissionTest, AfterStopNothingBeginsOrWaits) {
  CallAdmission admission(Few());
  Asker a(&admission, "t");
  Asker b(&admission, "t");
  EXPECT_TRUE(a.Wait().ok() && b.Wait().ok());
  Asker c(&admission, "t");
  AwaitWaiting(admission, 1);
  admission.Stop();
  EXPECT_EQ(ReasonOf(c.Wait()), "SHUTTING_DOWN");
  EXPECT_TRUE(absl::IsUnavailable(c.Wait()));
  EXPECT_TRUE(absl::IsUnavailable(admission.Admit(CallKind::kUnary, TenantCall("t")).status()));
}

TEST(CallAdmissionTest, NeverMoreThanTheLimitRunWhoeverComesAndGoes) {
  Limits limits = Few();
  limits.queue = 100;
  CallAdmission admission(limits);
  std::atomic<int> running{0};
  std::atomic<int> done{0};
  std::atomic<bool> too_many{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const TenantCall call(i % 2 == 0 ? "even" : "odd");
      for (int k = 0; k < 200; ++k) {
        const auto admitted = admission.Admit(CallKind::kStream, call);
        if (!admitted.ok()) continue;
        if (++running > 2) too_many = true;
        std::this_thread::yield();
        --running;
        ++done;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(too_many);
  EXPECT_EQ(done, 8 * 200);
  EXPECT_EQ(admission.counts().streams, 0);
}

}  // namespace
}  // namespace lethe
