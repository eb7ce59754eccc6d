// Goal: a session that is stored comes back as it was: digest, inputs, records, answers to repeats; what is damaged is
// not served; a kill at any point of a change leaves the old session or the new one, and erases what went.
// Method: the layers below gRPC on a data directory, closed and opened, with a child killed at every crash point.
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/server/durable_world.h"
#include "tests/server/store_testing.h"
#include "tests/testing/fault_switch.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

using ::testing::IsEmpty;

class DurableSessionTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(world_.Open()); }

  DurableWorld world_;
};

TEST_F(DurableSessionTest, AModelSessionComesBack) {
  const std::string id = world_.NewModelSession(Key("create"))->session_id;
  ASSERT_OK(world_.Append(id, "the first visit", "", "a1"));
  ASSERT_OK(world_.Append(id, "patient seventeen takes warfarin", "patient", "a2"));
  ASSERT_OK(world_.Generate(id, "and then", "g1", 20));
  ASSERT_OK_AND_ASSIGN(const ForgetReceipt forgotten, world_.Forget(id, "patient", "f1"));
  ASSERT_OK(world_.Generate(id, "", "g2", 90));
  ASSERT_OK_AND_ASSIGN(const CertifyReceipt certified, world_.RunCertify(id, "c1"));
  ASSERT_OK_AND_ASSIGN(const AppendReceipt appended, world_.Append(id, "the end", "", "a3"));
  const SessionView before = world_.View(id);
  ASSERT_GT(before.inputs.size(), 128u);

  for (int restart = 0; restart < 2; ++restart) {
    ASSERT_OK(world_.Open());
    EXPECT_EQ(world_.summary.num_sessions, 1);
    EXPECT_EQ(world_.summary.num_inputs, static_cast<int64_t>(before.inputs.size()));
    EXPECT_EQ(world_.Find(id)->Info().num_inputs, static_cast<int64_t>(before.inputs.size()));
    EXPECT_EQ(world_.Find(id)->display_name, "a name");
    EXPECT_TRUE(world_.View(id) == before);
    ASSERT_OK_AND_ASSIGN(const ForgetReceipt again, world_.Forget(id, "patient", "f1"));
    EXPECT_TRUE(again.repeated_request);
    EXPECT_EQ(again.digest_after, forgotten.digest_after);
    EXPECT_EQ(again.forgotten, forgotten.forgotten);
    EXPECT_EQ(again.derived_kept, forgotten.derived_kept);
    EXPECT_EQ(again.duration_us, forgotten.duration_us);
    EXPECT_EQ(again.methods.size(), forgotten.methods.size());
    EXPECT_EQ(again.record->leaf_index, forgotten.record->leaf_index);
    EXPECT_EQ(again.record->leaf_hash, forgotten.record->leaf_hash);
    ASSERT_OK_AND_ASSIGN(const AppendReceipt repeat, world_.Append(id, "the end", "", "a3"));
    EXPECT_EQ(repeat.token_ids, appended.token_ids);
    ASSERT_OK_AND_ASSIGN(const CertifyReceipt recertified, world_.RunCertify(id, "c1"));
    EXPECT_EQ(recertified.certificate.envelope, certified.certificate.envelope);
    EXPECT_EQ(recertified.digest, certified.digest);
    EXPECT_EQ(recertified.heads.size(), certified.heads.size());
    EXPECT_EQ(ReasonOf(world_.Append(id, "x", "", "a2").status()), "REQUEST_FORGOTTEN");
    EXPECT_EQ(ReasonOf(world_.Generate(id, "and then", "g1", 20)), "REQUEST_FORGOTTEN");
    EXPECT_EQ(ReasonOf(world_.Generate(id, "", "g2", 90)), "REQUEST_DONE");
    EXPECT_EQ(world_.NewModelSession(Key("create"))->session_id, id);
    EXPECT_TRUE(world_.View(id) == before);
  }
}

TEST_F(DurableSessionTest, AVectorSessionComesBack) {
  const std::string id = world_.NewVectorSession()->session_id;
  ASSERT_OK(world_.AppendRows(id, 40, 1, "", "a1"));
  ASSERT_OK(world_.AppendRows(id, 7, 2, "patient", "a2"));
  ASSERT_OK(world_.AppendRows(id, 30, 3, "", "a3"));
  ASSERT_OK(world_.Forget(id, "patient", "f1"));
  ASSERT_OK_AND_ASSIGN(const CertifyReceipt certified, world_.RunCertify(id, "c1"));
  ASSERT_OK_AND_ASSIGN(const EvictReceipt evicted,
                       world_.Evict(id, certified.certificate.ref.seq, "e1"));
  ASSERT_GT(evicted.num_evicted, 0);
  ASSERT_OK(world_.AppendRows(id, 1, 4, "last", "a4"));
  const SessionView before = world_.View(id);
  ASSERT_OK(world_.Open());
  EXPECT_TRUE(world_.View(id) == before);
  ASSERT_OK_AND_ASSIGN(const EvictReceipt again,
                       world_.Evict(id, certified.certificate.ref.seq, "e1"));
  EXPECT_TRUE(again.repeated_request);
  EXPECT_EQ(again.evicted, evicted.evicted);
  EXPECT_EQ(again.epoch, evicted.epoch);
  EXPECT_EQ(again.digest_after, evicted.digest_after);
  // What was evicted stays a fact of later records.
  ASSERT_OK(world_.RunCertify(id, "c2"));
  EXPECT_EQ(world_.Find(id)->Info().audit_seq, 4u);
}

TEST_F(DurableSessionTest, TokenIdsAreNotGivenOutAgain) {
  const std::string id = world_.NewModelSession()->session_id;
  ASSERT_OK(world_.Append(id, "stays", "", ""));
  ASSERT_OK_AND_ASSIGN(const AppendReceipt gone, world_.Append(id, "goes", "patient", ""));
  ASSERT_OK(world_.Forget(id, "patient", ""));
  ASSERT_OK(world_.Open());
  ASSERT_OK_AND_ASSIGN(const AppendReceipt next, world_.Append(id, "next", "", ""));
  EXPECT_EQ(next.token_ids.first, gone.token_ids.end);
}

TEST_F(DurableSessionTest, ADeletedSessionLeavesNothing) {
  const std::string id = world_.NewModelSession()->session_id;
  ASSERT_OK(world_.Append(id, "content", "label", "a1"));
  ASSERT_OK_AND_ASSIGN(const int64_t deleted, world_.registry().Delete(id, Key("d1")));
  EXPECT_EQ(deleted, 7);
  EXPECT_EQ(world_.data->store()->num_keys(), 1u);  // the registry's own
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.summary.num_sessions, 0);
  EXPECT_THAT(world_.registry().Find(id), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK_AND_ASSIGN(const int64_t again, world_.registry().Delete(id, Key("d1")));
  EXPECT_EQ(again, 7);
}

TEST_F(DurableSessionTest, AStoredSessionThatWasNotUsedCanBeDeleted) {
  const std::string id = world_.NewModelSession()->session_id;
  ASSERT_OK(world_.Append(id, "content", "label", "a1"));
  ASSERT_OK(world_.Open());
  ASSERT_OK_AND_ASSIGN(const int64_t deleted, world_.registry().Delete(id, {}));
  EXPECT_EQ(deleted, 7);
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.summary.num_sessions, 0);
}

TEST_F(DurableSessionTest, ASessionWaitsForItsModel) {
  const std::string id = world_.NewModelSession()->session_id;
  ASSERT_OK(world_.Append(id, "content", "", ""));
  const SessionView view = world_.View(id);
  ASSERT_OK(world_.Open(false));
  EXPECT_EQ(world_.summary.num_waiting, 1);
  EXPECT_EQ(world_.summary.num_sessions, 0);
  EXPECT_EQ(ReasonOf(world_.Append(id, "more", "", "").status()), "MODEL_NOT_LOADED");
  ASSERT_OK(world_.Open());
  EXPECT_TRUE(world_.View(id) == view);
}

TEST_F(DurableSessionTest, ALongListOfRequestsIsJoined) {
  const std::string id = world_.NewVectorSession()->session_id;
  for (int i = 0; i < 300; ++i) {
    ASSERT_OK(world_.AppendRows(id, 1, static_cast<unsigned>(i), "", absl::StrCat("r", i)));
  }
  ASSERT_OK_AND_ASSIGN(auto rows, world_.data->store()->AllRows());
  int num_meta = 0;
  for (const StoredRow& row : rows[1]) num_meta += row.kind == RowKind::kMeta ? 1 : 0;
  EXPECT_LT(num_meta, 60);
  const SessionView view = world_.View(id);
  ASSERT_OK(world_.Open());
  EXPECT_TRUE(world_.View(id) == view);
  ASSERT_OK_AND_ASSIGN(const AppendReceipt again, world_.AppendRows(id, 1, 0, "", "r0"));
  EXPECT_EQ(again.token_ids.first, 1u);
}

// Runs `work` on the world in a child that is killed at its n-th crash point; false once it has fewer.
bool RunKilled(int n, DurableWorld* world, const std::function<void()>& work) {
  world->Close();
  const pid_t child = fork();
  if (child == 0) {
    if (!world->Open().ok()) _exit(1);
    CrashAtPoint(n);
    work();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_THAT(WEXITSTATUS(status), ::testing::AnyOf(0, kCrashExit));
  return WEXITSTATUS(status) == kCrashExit;
}

// Sealed bytes and keys of the rows of session 1.
std::vector<std::string> TracesOf(const DurableWorld& world) {
  std::vector<std::string> traces;
  const std::string directory = world.data_path() + "/sessions";
  const std::string keys = audit::ReadFile(directory + "/data.keys");
  sqlite3* database = nullptr;
  EXPECT_EQ(sqlite3_open((directory + "/sessions.db").c_str(), &database), SQLITE_OK);
  sqlite3_stmt* statement = nullptr;
  EXPECT_EQ(sqlite3_prepare_v2(database, "SELECT slot, body FROM rows WHERE session = 1", -1,
                               &statement, nullptr),
            SQLITE_OK);
  while (sqlite3_step(statement) == SQLITE_ROW) {
    const auto slot = static_cast<size_t>(sqlite3_column_int64(statement, 0));
    traces.push_back(keys.substr(4096 + 64 * slot + 8, 32));
    const std::string body(static_cast<const char*>(sqlite3_column_blob(statement, 1)),
                           static_cast<size_t>(sqlite3_column_bytes(statement, 1)));
    for (size_t at = 0; at + 16 <= body.size(); at += 16) traces.push_back(body.substr(at, 16));
  }
  sqlite3_finalize(statement);
  sqlite3_close(database);
  return traces;
}

// A world with one session whose every row a Forget of "patient" replaces, closed.
struct ForgetCase {
  explicit ForgetCase(bool vectors) {
    EXPECT_OK(world.Open());
    if (vectors) {
      id = world.NewVectorSession()->session_id;
      EXPECT_OK(world.AppendRows(id, 20, 1, "", "a1"));
      EXPECT_OK(world.AppendRows(id, 5, 2, "patient", "a2"));
    } else {
      id = world.NewModelSession()->session_id;
      EXPECT_OK(world.Append(id, "the first visit", "", "a1"));
      EXPECT_OK(world.Append(id, "patient seventeen", "patient", "a2"));
      EXPECT_OK(world.Generate(id, "and", "g1", 5));
    }
    EXPECT_OK(world.RunCertify(id, "c1"));
    before = world.View(id);
    world.Close();
    traces = TracesOf(world);
  }
  DurableWorld world;
  std::string id;
  SessionView before;
  std::vector<std::string> traces;
};

TEST_F(DurableSessionTest, AKillAtEveryPointOfAForget) {
  for (const bool vectors : {false, true}) {
    int num_before = 0;
    int num_after = 0;
    for (int n = 1;; ++n) {
      ForgetCase test(vectors);
      DurableWorld& world = test.world;
      const bool killed = RunKilled(n, &world, [&] {
        if (!world.Forget(test.id, "patient", "f1").ok()) _exit(1);
      });
      ASSERT_OK(world.Open());
      ASSERT_EQ(world.summary.num_sessions, 1) << n;
      const SessionView after = world.View(test.id);
      const uint64_t num_leaves = world.data->log()->num_leaves();
      if (after == test.before) {
        ++num_before;
        EXPECT_EQ(num_leaves, 1u) << n;  // no certificate without its Forget
      } else {
        ++num_after;
        EXPECT_EQ(num_leaves, 2u) << n;  // no Forget without its certificate
        EXPECT_EQ(after.info.num_forgotten, vectors ? 5 : 17) << n;
        EXPECT_EQ(after.certificates.size(), 2u) << n;
        EXPECT_EQ(CountFound(FileBytes(world.data_path()), test.traces), 0) << n;
      }
      // The repeat finds the receipt, or forgets now; either way once.
      ASSERT_OK_AND_ASSIGN(const ForgetReceipt receipt, world.Forget(test.id, "patient", "f1"));
      EXPECT_EQ(receipt.digest_after, world.View(test.id).digest) << n;
      EXPECT_EQ(receipt.record->seq, 2u) << n;
      EXPECT_EQ(world.data->log()->num_leaves(), 2u) << n;
      EXPECT_EQ(world.data->store()->num_keys(), 3u) << n;  // the registry's, meta, one segment
      EXPECT_EQ(CountFound(FileBytes(world.data_path()), test.traces), 0) << n;
      if (!killed) break;
    }
    EXPECT_GE(num_before, 2);
    EXPECT_GE(num_after, 5);
  }
}

TEST_F(DurableSessionTest, ADamagedIntentQuarantinesItsSession) {
  ForgetCase test(false);
  DurableWorld& world = test.world;
  ASSERT_OK(world.Open());
  const std::string other = world.NewVectorSession()->session_id;
  // Behind the commit of what is prepared.
  ASSERT_TRUE(RunKilled(2, &world, [&] { world.Forget(test.id, "patient", "f1").IgnoreError(); }));
  sqlite3* database = nullptr;
  const std::string path = world.data_path() + "/sessions/sessions.db";
  ASSERT_EQ(sqlite3_open(path.c_str(), &database), SQLITE_OK);
  ASSERT_EQ(
      sqlite3_exec(database, "UPDATE intents SET checksum = x'00'", nullptr, nullptr, nullptr),
      SQLITE_OK);
  ASSERT_EQ(sqlite3_changes(database), 1);
  sqlite3_close(database);
  ASSERT_OK(world.Open());
  EXPECT_EQ(world.data->store_report().num_damaged_intents, 1);
  EXPECT_EQ(world.summary.num_quarantined, 1);
  EXPECT_EQ(ReasonOf(world.Find(test.id)->Availability()), "SESSION_QUARANTINED");
  EXPECT_OK(world.AppendRows(other, 3, 1, "", ""));
}

TEST_F(DurableSessionTest, EveryWipeOfAForgetIsNeeded) {
  for (const Fault fault : {Fault::kDataKeyKept, Fault::kOldRowsKept, Fault::kWalKept}) {
    ForgetCase test(false);
    ASSERT_OK(test.world.Open());
    EXPECT_GT(CountFound(FileBytes(test.world.data_path()), test.traces), 0);
    const ScopedFault off(fault);
    ASSERT_OK(test.world.Forget(test.id, "patient", "f1"));
    EXPECT_GT(CountFound(FileBytes(test.world.data_path()), test.traces), 0)
        << static_cast<int>(fault);
  }
}

TEST_F(DurableSessionTest, AKillAtEveryPointOfACertificate) {
  for (int n = 1;; ++n) {
    ForgetCase test(true);
    DurableWorld& world = test.world;
    const bool killed = RunKilled(n, &world, [&] {
      if (!world.RunCertify(test.id, "c2").ok()) _exit(1);
    });
    ASSERT_OK(world.Open());
    EXPECT_EQ(world.data->log()->num_leaves(), world.View(test.id).certificates.size()) << n;
    ASSERT_OK_AND_ASSIGN(const CertifyReceipt receipt, world.RunCertify(test.id, "c2"));
    EXPECT_EQ(receipt.certificate.ref.seq, 2u) << n;
    EXPECT_EQ(world.data->log()->num_leaves(), 2u) << n;
    EXPECT_EQ(world.View(test.id).digest, test.before.digest) << n;
    if (!killed) break;
  }
}

TEST_F(DurableSessionTest, AKillAtEveryPointOfAnAppendOrADeletion) {
  const std::vector<std::function<absl::Status(DurableWorld*, const std::string&)>> calls = {
      [](DurableWorld* world, const std::string& id) {
        return world->Append(id, " more", "", "a9").status();
      },
      [](DurableWorld* world, const std::string& id) {
        return world->registry().Delete(id, Key("d9")).status();
      }};
  for (const auto& call : calls) {
    for (int n = 1;; ++n) {
      ForgetCase test(false);
      DurableWorld& world = test.world;
      const bool killed = RunKilled(n, &world, [&] {
        if (!call(&world, test.id).ok()) _exit(1);
      });
      ASSERT_OK(world.Open());
      const bool is_there = world.registry().Find(test.id).ok();
      if (is_there) {
        const size_t count = world.View(test.id).inputs.size();
        EXPECT_TRUE(count == test.before.inputs.size() || count == test.before.inputs.size() + 5)
            << n;
      } else {
        EXPECT_EQ(CountFound(FileBytes(world.data_path()), test.traces), 0) << n;
      }
      ASSERT_OK(call(&world, test.id)) << n;  // a repeat after the kill does it once
      if (world.registry().Find(test.id).ok()) {
        EXPECT_EQ(world.View(test.id).inputs.size(), test.before.inputs.size() + 5) << n;
      }
      if (!killed) break;
    }
  }
}

TEST_F(DurableSessionTest, AFailedAppendOfTheLogIsTakenBackWhenItIsNotThere) {
  ForgetCase test(true);
  ASSERT_OK(test.world.Open());
  audit::WriteFile(test.world.data_path() + "/log/checkpoint", "not a checkpoint\n");
  EXPECT_THAT(test.world.data->log()->Recheck(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(ReasonOf(test.world.Forget(test.id, "patient", "f1").status()), "AUDIT_LOG");
  EXPECT_EQ(test.world.num_failures, 0);
  EXPECT_EQ(DigestOf(test.world.Find(test.id)), test.before.digest);
  ASSERT_OK(test.world.AppendRows(test.id, 1, 9, "", "a9"));
}

TEST_F(DurableSessionTest, ARecordThatMayBeInTheLogEndsTheProcess) {
  ForgetCase test(true);
  ASSERT_OK(test.world.Open());
  // The leaf is committed; its head cannot be published.
  std::filesystem::create_directory(test.world.data_path() + "/log/checkpoint.new");
  EXPECT_FALSE(test.world.Forget(test.id, "patient", "f1").ok());
  EXPECT_EQ(test.world.num_failures, 1);
  EXPECT_FALSE(test.world.AppendRows(test.id, 1, 9, "", "a9").ok());
  std::filesystem::remove(test.world.data_path() + "/log/checkpoint.new");
  ASSERT_OK(test.world.Open());
  ASSERT_OK_AND_ASSIGN(const ForgetReceipt receipt, test.world.Forget(test.id, "patient", "f1"));
  EXPECT_TRUE(receipt.repeated_request);
  EXPECT_EQ(receipt.digest_after, test.world.View(test.id).digest);
}

}  // namespace
}  // namespace lethe::testing
