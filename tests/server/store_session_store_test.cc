// Goal: the store gives back what it took, whatever ended the process; it notices every change; what it erased is gone.
// Method: bodies of random bytes; every column and file changed from outside; a child process killed at every crash
// point of each operation; files scanned for plain text, sealed text and keys, with each wipe switched off as control.
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/server/store_testing.h"
#include "tests/testing/fault_switch.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr audit::Sha256Digest kLeaf{7};

class SessionStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK(world_.Open()); }

  // A change of session 1: `body` under a new key instead of `rows`.
  StoreChange Replacement(const std::string& body, const std::vector<StoredRow>& rows) {
    StoreChange change;
    change.session = 1;
    change.add.emplace_back(RowKind::kInputs, world_.store->NewKey().value(), RowSpan{1, 2, 1},
                            body);
    for (const StoredRow& row : rows) change.remove.push_back(row.row_id);
    return change;
  }
  // Runs SQL on the closed database.
  void Execute(const std::string& sql) {
    world_.store.reset();
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open((world_.path() + "/sessions.db").c_str(), &database), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sql;
    sqlite3_close(database);
  }

  StoreWorld world_;
};

TEST_F(SessionStoreTest, KeepsRowsAndTheirOrder) {
  ASSERT_OK(world_.Put(1, "first"));
  ASSERT_OK(world_.Put(2, ""));
  ASSERT_OK(world_.Put(1, std::string(100'000, 'x')));
  ASSERT_OK(world_.Open());
  EXPECT_THAT(world_.Bodies(1), ElementsAre("first", std::string(100'000, 'x')));
  EXPECT_THAT(world_.Bodies(2), ElementsAre(""));
  EXPECT_EQ(world_.store->NewSession(), 3);
  EXPECT_EQ(world_.store->num_keys(), 3u);
}

TEST_F(SessionStoreTest, NoFileHoldsPlainText) {
  const std::string marker = RandomText(16);
  ASSERT_OK(world_.Put(1, marker + std::string(5000, 'p') + marker));
  EXPECT_EQ(CountFound(FileBytes(world_.path()), {marker, std::string(64, 'p')}), 0);
}

TEST_F(SessionStoreTest, EveryColumnIsAuthentic) {
  for (const char* change :
       {"session = 2", "kind = 1", "first_id = 0", "end_id = 3", "num_inputs = 2", "row_id = 9",
        "slot = slot + 1", "generation = generation + 1", "body = x'00'", "body = body || x'00'",
        "body = substr(body, 2)"}) {
    StoreWorld world;
    ASSERT_OK(world.Open());
    ASSERT_OK(world.Put(1, "content of a session"));
    ASSERT_OK(world.Put(1, "other content of it"));
    world.store.reset();
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open((world.path() + "/sessions.db").c_str(), &database), SQLITE_OK);
    const std::string sql = std::string("UPDATE rows SET ") + change + " WHERE row_id = 1";
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(database);
    ASSERT_OK(world.Open());
    int readable = 0;
    ASSERT_OK_AND_ASSIGN(const auto by_session, world.store->AllRows());
    for (const auto& [session, rows] : by_session) {
      for (const StoredRow& row : rows) {
        const auto body = world.store->Read(session, row);
        EXPECT_TRUE(body.ok() || absl::IsDataLoss(body.status())) << change;
        readable += body.ok() ? 1 : 0;
      }
    }
    EXPECT_EQ(readable, 1) << change;
  }
}

TEST_F(SessionStoreTest, ABodyDoesNotPassForAnotherRows) {
  const auto key = world_.store->NewKey().value();
  std::vector<StoreChange> changes(1);
  changes[0].session = 1;
  changes[0].add.emplace_back(RowKind::kInputs, key, RowSpan{}, "one");
  changes[0].add.emplace_back(RowKind::kInputs, key, RowSpan{}, "two");
  ASSERT_OK(world_.store->Apply(changes, Durability::kSynced));
  Execute("UPDATE rows SET body = (SELECT body FROM rows WHERE row_id = 1)");
  ASSERT_OK(world_.Open());
  EXPECT_THAT(world_.Bodies(1), ElementsAre("one", "unreadable"));
}

TEST_F(SessionStoreTest, DamagedAndForeignFilesAreRefusedAsAWhole) {
  ASSERT_OK(world_.Put(1, "content"));
  world_.store.reset();
  const std::string keys_path = world_.path() + "/data.keys";
  const std::string keys = audit::ReadFile(keys_path);
  std::string damaged = keys;
  damaged[20] = static_cast<char>(damaged[20] ^ 1);
  audit::WriteFile(keys_path, damaged);
  EXPECT_THAT(world_.Open(), StatusIs(absl::StatusCode::kDataLoss));
  std::filesystem::remove(keys_path);
  EXPECT_THAT(world_.Open(), StatusIs(absl::StatusCode::kDataLoss));
  StoreWorld other;
  ASSERT_OK(other.Open());
  std::filesystem::copy_file(other.path() + "/data.keys", keys_path);
  EXPECT_THAT(world_.Open(), StatusIs(absl::StatusCode::kFailedPrecondition));
  std::filesystem::remove(keys_path);
  audit::WriteFile(keys_path, keys);
  std::filesystem::permissions(keys_path, std::filesystem::perms(0644));
  EXPECT_THAT(world_.Open(), StatusIs(absl::StatusCode::kFailedPrecondition));
  std::filesystem::permissions(keys_path, std::filesystem::perms(0600));
  ASSERT_OK(world_.Open());
  world_.store.reset();
  std::filesystem::remove(world_.path() + "/sessions.db");
  const absl::Status missing = world_.Open();
  EXPECT_THAT(missing, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(missing.message(), HasSubstr("data.keys"));
}

TEST_F(SessionStoreTest, ADamagedKeyLosesItsRowsAlone) {
  const StoredRow first = world_.Put(1, "one").value();
  ASSERT_OK(world_.Put(2, "two"));
  world_.store.reset();
  const std::string keys_path = world_.path() + "/data.keys";
  std::string keys = audit::ReadFile(keys_path);
  char& byte = keys[4096 + 64 * first.key.slot + 20];
  byte = static_cast<char>(byte ^ 1);
  audit::WriteFile(keys_path, keys);
  ASSERT_OK(world_.Open());
  EXPECT_THAT(world_.Bodies(1), ElementsAre("unreadable"));
  EXPECT_THAT(world_.Bodies(2), ElementsAre("two"));
}

TEST_F(SessionStoreTest, AnIntentIsFinishedOrAbandonedAsTheLogSays) {
  for (const bool recorded : {false, true}) {
    StoreWorld world;
    ASSERT_OK(world.Open());
    const StoredRow old_row = world.Put(1, "old").value();
    StoreChange change;
    change.session = 1;
    change.add.emplace_back(RowKind::kInputs, world.store->NewKey().value(), RowSpan{}, "new");
    change.remove = {old_row.row_id};
    ASSERT_OK(world.store->Prepare(change, kLeaf));
    ASSERT_OK(world.Open(recorded));
    EXPECT_EQ(world.report.finished, recorded ? 1 : 0);
    EXPECT_EQ(world.report.abandoned, recorded ? 0 : 1);
    EXPECT_THAT(world.Bodies(1), ElementsAre(recorded ? "new" : "old"));
    EXPECT_EQ(world.store->num_keys(), 1u);
    ASSERT_OK(world.Open(!recorded));
    EXPECT_EQ(world.report.finished + world.report.abandoned, 0);
  }
}

TEST_F(SessionStoreTest, ADamagedIntentIsNotGuessedAt) {
  const StoredRow old_row = world_.Put(1, "old").value();
  ASSERT_OK(world_.store->Prepare(Replacement("new", {old_row}), kLeaf));
  Execute("UPDATE intents SET doomed = x'0000000000000000'");
  // Neither taken back nor finished; whoever reads the session sees that it does not add up.
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.report.num_damaged_intents, 1);
  EXPECT_EQ(world_.report.finished + world_.report.abandoned, 0);
  EXPECT_THAT(world_.Bodies(1), ElementsAre("old", "new"));
}

TEST_F(SessionStoreTest, FinishAndAbandonNeedAPreparedChange) {
  EXPECT_THAT(world_.store->Finish(1), StatusIs(absl::StatusCode::kFailedPrecondition));
  const StoredRow old_row = world_.Put(1, "old").value();
  ASSERT_OK(world_.store->Prepare(Replacement("new", {old_row}), kLeaf));
  ASSERT_OK(world_.store->Abandon(1));
  EXPECT_THAT(world_.Bodies(1), ElementsAre("old"));
  EXPECT_THAT(world_.store->Finish(1), StatusIs(absl::StatusCode::kFailedPrecondition));
}

// What remains of a row after an erasure: its sealed bytes in pieces, and its key.
std::vector<std::string> TracesOf(const std::string& path, const StoredRow& row) {
  const std::string keys = audit::ReadFile(path + "/data.keys");
  std::vector<std::string> traces = {keys.substr(4096 + 64 * row.key.slot + 8, 32)};
  sqlite3* database = nullptr;
  EXPECT_EQ(sqlite3_open((path + "/sessions.db").c_str(), &database), SQLITE_OK);
  sqlite3_stmt* statement = nullptr;
  const std::string sql = "SELECT body FROM rows WHERE row_id = " + std::to_string(row.row_id);
  EXPECT_EQ(sqlite3_prepare_v2(database, sql.c_str(), -1, &statement, nullptr), SQLITE_OK);
  EXPECT_EQ(sqlite3_step(statement), SQLITE_ROW);
  const std::string body(static_cast<const char*>(sqlite3_column_blob(statement, 0)),
                         static_cast<size_t>(sqlite3_column_bytes(statement, 0)));
  sqlite3_finalize(statement);
  sqlite3_close(database);
  for (size_t at = 0; at + 16 <= body.size(); at += 16) traces.push_back(body.substr(at, 16));
  return traces;
}

// Writes rows of several sizes, erases some by an intent or by Apply, and returns how many traces of theirs are found.
int TracesLeft(bool with_intent) {
  StoreWorld world;
  EXPECT_OK(world.Open());
  std::vector<StoredRow> doomed;
  std::vector<int64_t> doomed_ids;
  std::vector<DataKeyRef> doomed_keys;
  for (int i = 0; i < 60; ++i) {
    const size_t size = i % 5 == 4 ? 9000 : 40 + 37 * static_cast<size_t>(i);
    const StoredRow row = world.Put(1, RandomText(size)).value();
    if (i % 3 != 1) continue;
    doomed.push_back(row);
    doomed_ids.push_back(row.row_id);
    doomed_keys.push_back(row.key);
  }
  EXPECT_OK(world.Open());  // closed in between: the write-ahead log is in the database
  world.store.reset();
  std::vector<std::string> traces;
  for (const StoredRow& row : doomed) {
    const std::vector<std::string> of_row = TracesOf(world.path(), row);
    traces.insert(traces.end(), of_row.begin(), of_row.end());
  }
  // The borders of overflow pages cut a few.
  EXPECT_GT(CountFound(FileBytes(world.path()), traces), static_cast<int>(traces.size()) - 20);
  EXPECT_OK(world.Open());
  std::vector<StoreChange> changes(1);
  changes[0].session = 1;
  changes[0].add.emplace_back(RowKind::kInputs, world.store->NewKey().value(), RowSpan{}, "rest");
  changes[0].remove = doomed_ids;
  if (with_intent) {
    EXPECT_OK(world.store->Prepare(changes[0], kLeaf));
    EXPECT_OK(world.store->Finish(1));
  } else {
    EXPECT_OK(world.store->Apply(changes, Durability::kSynced));
  }
  EXPECT_OK(world.store->Erase(doomed_keys));
  return CountFound(FileBytes(world.path()), traces);
}

TEST_F(SessionStoreTest, WhatIsErasedIsInNoFile) {
  EXPECT_EQ(TracesLeft(true), 0);
  EXPECT_EQ(TracesLeft(false), 0);
}

TEST_F(SessionStoreTest, EveryWipeIsNeeded) {
  for (const Fault fault : {Fault::kDataKeyKept, Fault::kOldRowsKept, Fault::kWalKept}) {
    const ScopedFault off(fault);
    EXPECT_GT(TracesLeft(true), 0) << static_cast<int>(fault);
    EXPECT_GT(TracesLeft(false), 0) << static_cast<int>(fault);
  }
}

// Runs `work` in a child that is killed at its n-th crash point; false once it has fewer.
bool RunKilled(int n, const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
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

TEST_F(SessionStoreTest, AKillAtEveryPointOfAPreparedChangeLeavesTheOldOrTheNew) {
  int num_points = 0;
  for (int n = 1;; ++n) {
    StoreWorld world;
    ASSERT_OK(world.Open());
    const StoredRow old_row = world.Put(1, "old").value();
    world.store.reset();
    const std::string recorded_path = world.path() + "/recorded";
    const bool killed = RunKilled(n, [&] {
      if (!world.Open().ok()) _exit(1);
      StoreChange change;
      change.session = 1;
      change.add.emplace_back(RowKind::kInputs, world.store->NewKey().value(), RowSpan{}, "new");
      change.remove = {old_row.row_id};
      if (!world.store->Prepare(change, kLeaf).ok()) _exit(1);
      audit::WriteFile(recorded_path, "");  // stands for the log
      if (!world.store->Finish(1).ok()) _exit(1);
      if (!world.store->Erase({{old_row.key}}).ok()) _exit(1);
    });
    const bool recorded = std::filesystem::exists(recorded_path);
    ASSERT_OK(world.Open(recorded));
    EXPECT_THAT(world.Bodies(1), ElementsAre(recorded ? "new" : "old")) << n;
    EXPECT_EQ(world.store->num_keys(), 1u) << n;
    if (!killed) break;
    ++num_points;
  }
  EXPECT_GE(num_points, 7);
}

TEST_F(SessionStoreTest, AKillAtEveryPointOfRecoveryIsRecoveredFrom) {
  for (int n = 1;; ++n) {
    StoreWorld world;
    ASSERT_OK(world.Open());
    const StoredRow old_row = world.Put(1, "old").value();
    StoreChange change;
    change.session = 1;
    change.add.emplace_back(RowKind::kInputs, world.store->NewKey().value(), RowSpan{}, "new");
    change.remove = {old_row.row_id};
    ASSERT_OK(world.store->Prepare(change, kLeaf));
    world.store.reset();
    const bool killed = RunKilled(n, [&] {
      if (!world.Open(true).ok()) _exit(1);
    });
    ASSERT_OK(world.Open(true));
    EXPECT_THAT(world.Bodies(1), ElementsAre("new")) << n;
    EXPECT_EQ(world.store->num_keys(), 1u) << n;
    if (!killed) break;
  }
}

TEST_F(SessionStoreTest, WhatWasHandedOverSurvivesTheProcess) {
  world_.store.reset();
  RunKilled(0, [&] {
    if (!world_.Open().ok()) _exit(1);
    const DataKeyRef key = world_.store->NewKey().value();
    std::vector<StoreChange> changes(1);
    changes[0].session = 1;
    changes[0].add.emplace_back(RowKind::kInputs, key, RowSpan{}, "token");
    if (!world_.store->Apply(changes, Durability::kHandedOver).ok()) _exit(1);
  });
  ASSERT_OK(world_.Open());
  EXPECT_THAT(world_.Bodies(1), ElementsAre("token"));
}

TEST_F(SessionStoreTest, AnUnknownKeyChangesNothing) {
  std::vector<StoreChange> changes(1);
  changes[0].session = 1;
  changes[0].add.emplace_back(RowKind::kInputs, world_.store->NewKey().value(), RowSpan{}, "one");
  changes[0].add.emplace_back(RowKind::kInputs, DataKeyRef{5, 5}, RowSpan{}, "two");
  EXPECT_FALSE(world_.store->Apply(changes, Durability::kSynced).ok());
  EXPECT_THAT(world_.Bodies(1), IsEmpty());
  EXPECT_EQ(world_.failures, 0);
  ASSERT_OK(world_.Put(1, "three"));
}

}  // namespace
}  // namespace lethe::testing
