// Goal: a session that nobody uses leaves memory and comes back on use as it was; one in use stays; the one used longest
// ago leaves first.
// Method: a data directory of model and vector sessions, swept at chosen times.
#include "server/session_registry/resident_sessions.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/server/durable_world.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

bool IsResident(const SessionEntry& entry) { return entry.Info().state_bytes > 0; }

class ResidentSessionsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(world_.Open()); }
  SweepReport SweepAfter(int64_t seconds, ResidentOptions options) {
    return SweepSessions(options, world_.registry(), NowSteadyMicros() + seconds * 1'000'000);
  }

  DurableWorld world_;
};

TEST_F(ResidentSessionsTest, AnIdleSessionLeavesAndComesBackAsItWas) {
  const std::string model = world_.NewModelSession()->session_id;
  ASSERT_OK(world_.Append(model, "patient seventeen", "patient", "a1"));
  ASSERT_OK(world_.Append(model, "the second visit", "", "a2"));
  ASSERT_OK(world_.Forget(model, "patient", "f1"));
  ASSERT_OK(world_.Generate(model, "and", "g1", 70));
  const std::string vectors = world_.NewVectorSession()->session_id;
  ASSERT_OK(world_.AppendRows(vectors, 20, 1, "", "a1"));
  ASSERT_OK(world_.AppendRows(vectors, 4, 2, "patient", "a2"));
  ASSERT_OK(world_.Forget(vectors, "patient", "f1"));
  const SessionView model_view = world_.View(model);
  const SessionView vector_view = world_.View(vectors);
  const int64_t num_inputs = world_.Find(model)->Info().num_inputs;

  EXPECT_EQ(SweepAfter(9, {0, 10}).num_idle, 0);
  EXPECT_EQ(SweepAfter(1000, {0, 0}).num_idle, 0);
  const SweepReport report = SweepAfter(11, {0, 10});
  EXPECT_EQ(report.num_idle, 2);
  EXPECT_EQ(report.num_resident, 0);
  EXPECT_EQ(report.resident_bytes, 0);
  EXPECT_FALSE(IsResident(*world_.Find(model)));
  EXPECT_EQ(world_.Find(model)->Info().num_inputs, num_inputs);
  EXPECT_TRUE(world_.View(model) == model_view);
  EXPECT_TRUE(IsResident(*world_.Find(model)));
  EXPECT_TRUE(world_.View(vectors) == vector_view);

  // Whatever comes first after it.
  ASSERT_EQ(SweepAfter(11, {0, 10}).num_idle, 2);
  ASSERT_OK_AND_ASSIGN(const ForgetReceipt again, world_.Forget(model, "patient", "f1"));
  EXPECT_TRUE(again.repeated_request);
  ASSERT_OK(world_.Append(model, "third", "", "a3"));
  ASSERT_OK(world_.RunCertify(vectors, "c1"));
  ASSERT_OK(world_.AppendRows(vectors, 2, 5, "", "a5"));
  const SessionView later = world_.View(model);
  EXPECT_EQ(later.inputs.size(), model_view.inputs.size() + 5);
  ASSERT_OK(world_.Open());
  EXPECT_TRUE(world_.View(model) == later);
}

TEST_F(ResidentSessionsTest, TheOneUsedLongestAgoLeavesForTheBudget) {
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) {
    ids.push_back(world_.NewModelSession()->session_id);
    ASSERT_OK(world_.Append(ids.back(), "the same text", "", ""));
    world_.View(ids.back());
  }
  world_.View(ids[0]);  // again
  const SweepReport all = SweepAfter(0, {});
  EXPECT_EQ(all.num_resident, 4);
  const SweepReport two = SweepAfter(0, {all.resident_bytes / 2 + 1, 0});
  EXPECT_EQ(two.num_over, 2);
  EXPECT_EQ(two.num_resident, 2);
  EXPECT_LE(two.resident_bytes, all.resident_bytes / 2 + 1);
  EXPECT_TRUE(IsResident(*world_.Find(ids[0])));
  EXPECT_FALSE(IsResident(*world_.Find(ids[1])));
  EXPECT_FALSE(IsResident(*world_.Find(ids[2])));
  EXPECT_TRUE(IsResident(*world_.Find(ids[3])));
  EXPECT_EQ(SweepAfter(0, {all.resident_bytes / 2 + 1, 0}).num_over, 0);
}

TEST_F(ResidentSessionsTest, ASessionInUseStays) {
  const std::string id = world_.NewModelSession()->session_id;
  ASSERT_OK(world_.Append(id, "content", "", ""));
  world_.View(id);
  const std::shared_ptr<SessionEntry> entry = world_.Find(id);
  {
    FairMutexLock lock(&entry->mutex);
    EXPECT_EQ(SweepAfter(100, {1, 1}).num_resident, 1);
    ASSERT_OK(entry->BeginWrite());
  }
  EXPECT_EQ(SweepAfter(100, {1, 1}).num_resident, 1);
  {
    FairMutexLock lock(&entry->mutex);
    entry->EndWrite();
  }
  std::unique_ptr<GenerationTarget> fork;
  {
    FairMutexLock lock(&entry->mutex);
    fork = GenerationTarget::OfFork(entry).value();
  }
  EXPECT_EQ(SweepAfter(100, {1, 1}).num_resident, 1);
  fork.reset();
  EXPECT_EQ(SweepAfter(100, {1, 1}).num_idle, 1);
}

TEST_F(ResidentSessionsTest, ASessionWithoutAStoreStays) {
  SessionRegistry registry(1);
  const auto entry = registry.Create({TinyModel(), {}, ""}, {}).value();
  EXPECT_EQ(SweepSessions({1, 1}, registry, NowSteadyMicros() + 100'000'000).num_idle, 0);
  FairMutexLock lock(&entry->mutex);
  EXPECT_OK(entry->LiveSession());
}

}  // namespace
}  // namespace lethe::testing
