// Goal: a session that nobody uses leaves memory and comes back on use as it was; one in use stays; the one used longest
// ago leaves first.
// Method: a data directory of model and vector sessions, swept at chosen times.
#include "server/session_registry/resident_sessions.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/server/durable_world.h"
#include "tests/testing/fault_switch.h"
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

TEST_F(ResidentSessionsTest, ASessionThatIsNewHasNotBeenIdle) {
  // An empty vector session holds nothing.
  ASSERT_TRUE(IsResident(*world_.NewModelSession()));
  EXPECT_EQ(SweepAfter(5, {0, 10}).num_idle, 0);
  EXPECT_EQ(SweepAfter(11, {0, 10}).num_idle, 1);
}

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
    fork = GenerationTarget::OfFork(entry, "").value();
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

class SpilledSessionsTest : public ResidentSessionsTest {
 protected:
  void SetUp() override {
    ResidentSessionsTest::SetUp();
    id_ = world_.NewModelSession()->session_id;
    for (int i = 0; i < 9; ++i) {
      const std::string label = i == 3 ? "patient" : i == 8 ? "late" : "";
      ASSERT_OK(world_.Append(id_, absl::StrCat("a visit on a rainy day in spring, number ", i),
                              label, absl::StrCat("a", i)));
    }
    view_ = world_.View(id_);
    ASSERT_GT(view_.inputs.size(), 320u);
  }
  SweepReport Leave() { return SweepAfter(11, {0, 10, int64_t{1} << 30}); }
  SessionJournal* journal() { return world_.Find(id_)->journal.get(); }
  std::vector<int64_t> Ladder() {
    const std::shared_ptr<SessionEntry> entry = world_.Find(id_);
    FairMutexLock lock(&entry->mutex);
    return entry->LiveSession().value()->snapshot_ranks();
  }
  // What a session that saw nothing else has.
  audit::Sha256Digest FreshDigest(bool without_patient, bool without_late) {
    const std::string fresh = world_.NewModelSession()->session_id;
    for (int i = 0; i < 9; ++i) {
      if ((i == 3 && without_patient) || (i == 8 && without_late)) continue;
      EXPECT_OK(world_.Append(fresh, absl::StrCat("a visit on a rainy day in spring, number ", i),
                              "", ""));
    }
    return world_.View(fresh).digest;
  }
  // Changes a byte of the body of every snapshot row.
  void DamageSnapshots() {
    world_.Close();
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open((world_.data_path() + "/sessions/sessions.db").c_str(), &database),
              SQLITE_OK);
    ASSERT_EQ(
        sqlite3_exec(database, "UPDATE rows SET body = x'00' || substr(body, 2) WHERE kind = 3",
                     nullptr, nullptr, nullptr),
        SQLITE_OK);
    ASSERT_GT(sqlite3_changes(database), 0);
    sqlite3_close(database);
    ASSERT_OK(world_.Open());
  }

  std::string id_;
  SessionView view_;
};

TEST_F(SpilledSessionsTest, ASessionGoesOnFromItsSnapshots) {
  const SweepReport report = Leave();
  EXPECT_EQ(report.num_idle, 1);
  EXPECT_EQ(report.num_spilled, 1);
  EXPECT_GT(report.snapshot_bytes, 0);
  const int64_t rank = journal()->snapshot_rank();
  EXPECT_EQ(rank, static_cast<int64_t>(view_.inputs.size()) / 64 * 64);
  EXPECT_TRUE(world_.View(id_) == view_);
  EXPECT_EQ(Ladder().back(), rank);
  EXPECT_GE(Ladder().size(), 3u);
  // What comes after it, after a restart too.
  ASSERT_OK(world_.Append(id_, "more of it", "", "b1"));
  ASSERT_OK(world_.Generate(id_, "and", "g1", 70));
  const SessionView later = world_.View(id_);
  ASSERT_OK(world_.Open());
  EXPECT_EQ(journal()->snapshot_rank(), rank);
  EXPECT_TRUE(world_.View(id_) == later);
}

TEST_F(SpilledSessionsTest, AForgetDestroysWhatWasEvaluatedFromIt) {
  ASSERT_EQ(Leave().num_spilled, 1);
  ASSERT_GT(journal()->num_snapshots(), 1);
  const int64_t last = journal()->snapshot_rank();
  // Behind the last snapshot: it stays.
  ASSERT_OK(world_.Forget(id_, "late", "f1"));
  EXPECT_EQ(journal()->snapshot_rank(), last);
  EXPECT_EQ(world_.View(id_).digest, FreshDigest(false, true));
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.View(id_).digest, FreshDigest(false, true));
  // Before it: those evaluated from what goes are gone, with their keys, before the answer.
  const size_t num_keys = world_.data->store()->num_keys();
  const int64_t num_snapshots = journal()->num_snapshots();
  ASSERT_OK(world_.Forget(id_, "patient", "f2"));
  EXPECT_LT(journal()->snapshot_rank(), 192);
  EXPECT_LE(world_.data->store()->num_keys(),
            num_keys - static_cast<size_t>(num_snapshots - journal()->num_snapshots()));
  EXPECT_EQ(world_.View(id_).digest, FreshDigest(true, true));
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.View(id_).digest, FreshDigest(true, true));
  // And are made again.
  Leave();
  EXPECT_GE(journal()->snapshot_rank(), 256);
  EXPECT_EQ(world_.View(id_).digest, FreshDigest(true, true));
}

TEST_F(SpilledSessionsTest, ADamagedSnapshotIsNotUsed) {
  ASSERT_EQ(Leave().num_spilled, 1);
  DamageSnapshots();
  EXPECT_GT(journal()->num_snapshots(), 0);
  EXPECT_TRUE(world_.View(id_) == view_);
  EXPECT_EQ(journal()->num_snapshots(), 0);
}

TEST_F(SpilledSessionsTest, TheBudgetHoldsOnDisk) {
  const std::string other = world_.NewModelSession()->session_id;
  for (int i = 0; i < 9; ++i) {
    ASSERT_OK(world_.Append(other, absl::StrCat("another text of thirty or so bytes ", i), "", ""));
  }
  world_.View(other);
  EXPECT_EQ(SweepAfter(4, {0, 0, int64_t{1} << 30}).num_spilled, 0);  // not yet
  EXPECT_EQ(SweepAfter(6, {0, 0, 0}).num_spilled, 0);
  const SweepReport both = SweepAfter(6, {0, 0, int64_t{1} << 30});
  EXPECT_EQ(both.num_spilled, 2);
  EXPECT_EQ(SweepAfter(6, {0, 0, int64_t{1} << 30}).num_spilled, 0);  // nothing new
  const SweepReport one = SweepAfter(6, {0, 0, both.snapshot_bytes - 1});
  EXPECT_EQ(one.num_unspilled, 1);
  EXPECT_EQ(journal()->num_snapshots(), 0);  // used before the other
  EXPECT_GT(world_.Find(other)->journal->num_snapshots(), 0);
  // The next sweep does not store what the last one dropped.
  const SweepReport again = SweepAfter(6, {0, 0, both.snapshot_bytes - 1});
  EXPECT_EQ(again.num_spilled + again.num_unspilled, 0);
}

TEST_F(SpilledSessionsTest, AKillWhileSnapshotsAreStoredLosesNothing) {
  for (int n = 1; n <= 4; ++n) {
    world_.Close();
    const pid_t child = fork();
    if (child == 0) {
      if (!world_.Open().ok()) _exit(1);
      world_.View(id_);
      CrashAtPoint(n);
      Leave();
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_OK(world_.Open());
    EXPECT_TRUE(world_.View(id_) == view_) << n;
  }
}

}  // namespace
}  // namespace lethe::testing
