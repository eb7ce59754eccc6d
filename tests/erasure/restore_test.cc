// Goal: a restored data directory comes back with every later Forget and deletion applied: untouched sessions with the
// digest that they were copied with, the others with the digest that their Forget left, nothing of what was forgotten
// in any row; and it does not come back without its erasure ledger.
// Method: cycles of copy, change, restore (100 a round) of a world of model and vector sessions, whose
// rows are decrypted and searched after each. Control: without the replay what was forgotten is found.
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "audit/certificate/dsse.h"
#include "audit/certificate/statement.h"
#include "tests/server/durable_world.h"
#include "tests/testing/fault_switch.h"
#include "tests/testing/long_run.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

namespace fs = std::filesystem;

// A directory as it is, for a restore.
class Backup {
 public:
  explicit Backup(const std::string& path) : from_(path), copy_(directory_.path() + "/copy") {
    fs::copy(from_, copy_, fs::copy_options::recursive);
  }
  void Restore() const {
    fs::remove_all(from_);
    fs::copy(copy_, from_, fs::copy_options::recursive);
  }

 private:
  audit::TempDirectory directory_{audit::TempDirectory::Where::kMemory};
  const std::string from_;
  const std::string copy_;
};

// All plain text in the store.
std::string AllRows(DurableWorld* world) {
  std::string plain;
  const auto by_session = world->data->store()->AllRows().value();
  for (const auto& [session, rows] : by_session) {
    for (const StoredRow& row : rows) plain += world->data->store()->Read(session, row).value();
  }
  return plain;
}

struct Secret {
  std::string session_id;
  std::string label;
};

class RestoreTest : public ::testing::Test {
 protected:
  RestoreTest() {
    world_.origin = "";
    EXPECT_TRUE(world_.Open().ok());
  }

  // As an operator does: the log of the copy is older than its anchor, and a new one begins.
  void Restore(const Backup& backup) {
    world_.Close();
    backup.Restore();
    KeyChange change;
    change.kind = KeyChange::Kind::kRestoreLog;
    change.new_origin = absl::StrCat("lethe.dev/audit/test-", ++num_restores_);
    ASSERT_OK(DataDirectory::ChangeKey(world_.data_path(), "", change));
  }

  // A model's session in odd cycles, else one of vectors; with something that stays and `count` secrets.
  std::string NewSession(int cycle, int count) {
    const bool has_model = cycle % 2 == 1;
    const std::string id =
        has_model ? world_.NewModelSession()->session_id : world_.NewVectorSession()->session_id;
    for (int k = 0; k < count; ++k) {
      const std::string label = absl::StrCat("secret-", cycle, "-", k, "-of-somebody");
      const std::string request = absl::StrCat(id, "-", k);
      if (has_model) {
        EXPECT_TRUE(world_.Append(id, "stays", "", request + "s").ok());
        EXPECT_TRUE(world_.Append(id, label, label, request).ok());
        EXPECT_TRUE(world_.Generate(id, "and", request + "g", 3).ok());
      } else {
        const auto seed = static_cast<unsigned>(10 * cycle + k);
        EXPECT_TRUE(world_.AppendRows(id, 4, seed, "", request + "s").ok());
        EXPECT_TRUE(world_.AppendRows(id, 2, seed + 5, label, request).ok());
      }
      secrets_.push_back({id, label});
    }
    return id;
  }
  std::map<std::string, SessionView> AllViews() {
    std::map<std::string, SessionView> views;
    for (const auto& entry : world_.registry().List("", 1000)) {
      views[entry->session_id] = world_.View(entry->session_id);
    }
    return views;
  }

  DurableWorld world_;
  std::vector<Secret> secrets_;
  int num_restores_ = 0;
};

class RestoreRounds : public RestoreTest {
 protected:
  // Copy, change, restore.
  void Cycle(int cycle, std::mt19937_64* random) {
    NewSession(cycle, 2);
    world_.Close();
    const Backup backup(world_.data_path());
    ASSERT_OK(world_.Open());
    const std::map<std::string, SessionView> copied = AllViews();
    // Now and then several Forgets, of several sessions; inputs that the copy never sees; a session deleted.
    std::map<std::string, audit::Sha256Digest> changed;
    std::vector<std::string> forgotten;
    while (!secrets_.empty() && (forgotten.empty() || (*random)() % 2 == 0)) {
      const size_t k = (*random)() % secrets_.size();
      const Secret secret = secrets_[k];
      secrets_.erase(secrets_.begin() + static_cast<ptrdiff_t>(k));
      ASSERT_TRUE(world_
                      .Forget(secret.session_id, secret.label,
                              absl::StrCat("forget-", cycle, "-", forgotten.size()))
                      .ok());
      changed[secret.session_id] = world_.View(secret.session_id).digest;
      forgotten.push_back(secret.label);
    }
    std::string deleted;
    if (copied.size() > 6) {
      deleted = copied.begin()->first;
      ASSERT_TRUE(world_.registry().Delete(deleted, {}).ok());
      std::erase_if(secrets_, [&](const Secret& secret) { return secret.session_id == deleted; });
    }

    Restore(backup);
    ASSERT_OK(world_.Open());
    const std::map<std::string, SessionView> restored = AllViews();
    EXPECT_EQ(restored.size(), copied.size() - (deleted.empty() ? 0 : 1));
    EXPECT_EQ(restored.count(deleted), 0u);
    for (const auto& [id, view] : restored) {
      if (changed.count(id) == 0) {
        EXPECT_TRUE(view == copied.at(id)) << cycle;
      } else {
        EXPECT_EQ(view.digest, changed[id]) << cycle;
        EXPECT_EQ(view.certificates.size(), copied.at(id).certificates.size() + 1);
      }
    }
    const std::string rows = AllRows(&world_);
    for (const std::string& label : forgotten) {
      EXPECT_EQ(rows.find(label), std::string::npos) << cycle;
    }
    // Once is enough.
    ASSERT_OK(world_.Open());
    EXPECT_EQ(world_.replayed.num_sessions + world_.replayed.num_deleted, 0);
  }
};

TEST_F(RestoreRounds, NothingForgottenComesBack) {
  int cycle = 0;
  for (LongRun run("restore"); run.Next() && !HasFailure();) {
    std::mt19937_64 random(run.seed());
    for (const int end = cycle + 100; cycle < end && !HasFailure(); ++cycle) {
      Cycle(cycle, &random);
    }
    run.Count("cycles", 100);
  }
}

TEST_F(RestoreTest, WithoutTheReplayWhatWasForgottenIsBack) {
  const std::string id = NewSession(1, 2);
  world_.Close();
  const Backup backup(world_.data_path());
  ASSERT_OK(world_.Open());
  ASSERT_TRUE(world_.Forget(id, secrets_[0].label, "f").ok());
  Restore(backup);
  {
    const ScopedFault fault(Fault::kLedgerNotReplayed);
    ASSERT_OK(world_.Open());
  }
  EXPECT_NE(AllRows(&world_).find(secrets_[0].label), std::string::npos);
}

TEST_F(RestoreTest, TheReplaysRecordNamesTheLostOne) {
  const std::string id = NewSession(1, 1);
  world_.Close();
  const Backup backup(world_.data_path());
  ASSERT_OK(world_.Open());
  const ForgetReceipt lost = world_.Forget(id, secrets_[0].label, "f").value();
  Restore(backup);
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.replayed.num_forgotten, lost.num_forgotten);
  const std::string leaf =
      absl::BytesToHexString(audit::AsStringView(lost.record->leaf_hash)).substr(0, 32);
  const FetchedCertificate certificate = world_.Certificate(id, 1);
  const auto envelope = audit::ParseEnvelope(certificate.certificate.envelope).value();
  const audit::Statement statement = audit::ParseStatement(envelope.payload).value();
  EXPECT_EQ(statement.request_id, "erasure-ledger-" + leaf);
  EXPECT_EQ(statement.forgot.count, static_cast<uint64_t>(lost.num_forgotten));
}

TEST_F(RestoreTest, ASessionThatWaitsForItsModelKeepsTheServerFromStarting) {
  const std::string id = NewSession(1, 1);
  world_.Close();
  const Backup backup(world_.data_path());
  ASSERT_OK(world_.Open());
  ASSERT_TRUE(world_.Forget(id, secrets_[0].label, "f").ok());
  Restore(backup);
  EXPECT_THAT(world_.Open(false), StatusIs(absl::StatusCode::kFailedPrecondition, "is not loaded"));
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.replayed.num_sessions, 1);
}

TEST_F(RestoreTest, TheLedgerIsNeededAndMustNotBeOlder) {
  const std::string id = NewSession(1, 2);
  world_.Close();
  const Backup ledger(world_.ledger_path());
  ASSERT_OK(world_.Open());
  ASSERT_TRUE(world_.Forget(id, secrets_[0].label, "f").ok());
  world_.Close();
  const Backup newer(world_.ledger_path());
  ledger.Restore();
  EXPECT_THAT(world_.Open(), StatusIs(absl::StatusCode::kFailedPrecondition, "older than"));
  fs::remove_all(world_.ledger_path());
  EXPECT_THAT(world_.Open(), StatusIs(absl::StatusCode::kFailedPrecondition, "is missing"));
  newer.Restore();
  EXPECT_TRUE(world_.Open().ok());
}

}  // namespace
}  // namespace lethe::testing
