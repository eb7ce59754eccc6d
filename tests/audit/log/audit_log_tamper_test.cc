// Goal: a changed, cut, restored or replaced log is noticed at the next start and never signed
// again; every bit flip of an exported log and of a proof file is detected by a holder of one
// checkpoint.
// Method: SQL and files changed behind the log's back; exhaustive flips.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include <sqlite3.h>

#include "audit/log/audit_log.h"
#include "audit/log/checkpoint.h"
#include "audit/log/merkle_tree.h"
#include "audit/log/merkle_verify.h"
#include "audit/log/tlog_proof.h"
#include "tests/audit/log/log_testing.h"
#include "tests/audit/temp_directory.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;
constexpr int kNumLeaves = 10;

class AuditLogTamperTest : public ::testing::Test {
 protected:
  // One log is written for the whole suite; every test spoils a copy.
  static void SetUpTestSuite() {
    pristine_ = new TempDirectory();
    ASSERT_OK_AND_ASSIGN(
        std::unique_ptr<AuditLog> log,
        AuditLog::Open({pristine_->path() + "/log", "test.example/log", TestLogKey()}));
    for (int i = 0; i < kNumLeaves; ++i) ASSERT_OK(log->Append(TestLeaf(i), "body"));
  }
  static void TearDownTestSuite() {
    delete pristine_;
    pristine_ = nullptr;
  }
  void SetUp() override {
    std::filesystem::copy(pristine_->path(), directory_.path(),
                          std::filesystem::copy_options::recursive);
  }

  std::string Path(const std::string& name) const { return directory_.path() + "/log/" + name; }
  AuditLogOptions Options() const { return {directory_.path() + "/log", "test.example/log", key_}; }

  void Sql(const char* sql) const {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(Path("log.db").c_str(), &database), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(database, sql, nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(database);
    ASSERT_EQ(sqlite3_close(database), SQLITE_OK);
  }

  // Opens the log, which must be frozen for a reason that holds `text`, and signs and proves
  // nothing.
  void ExpectFrozen(const char* text) const {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
    EXPECT_THAT(log->frozen(), StatusIs(absl::StatusCode::kDataLoss, text));
    EXPECT_THAT(log->Append(TestLeaf(99), "body"), StatusIs(absl::StatusCode::kDataLoss, text));
    EXPECT_THAT(log->SignedCheckpoint(), StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_THAT(log->ProofFile(0), StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_THAT(log->ConsistencyProof(1, 2), StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_THAT(log->Recheck(), StatusIs(absl::StatusCode::kDataLoss));
  }

  static TempDirectory* pristine_;
  const TempDirectory directory_;
  const std::shared_ptr<const Ed25519PrivateKey> key_ = TestLogKey();
};

TempDirectory* AuditLogTamperTest::pristine_ = nullptr;

TEST_F(AuditLogTamperTest, ChangedLeaf) {
  Sql("UPDATE leaves SET leaf = replace(CAST(leaf AS TEXT), '0.0.2', '0.0.3') WHERE leaf_index = "
      "4");
  ExpectFrozen("a stored leaf has changed");
}

TEST_F(AuditLogTamperTest, ChangedLeafHash) {
  Sql("UPDATE leaves SET leaf_hash = zeroblob(32) WHERE leaf_index = 4");
  ExpectFrozen("a stored leaf has changed");
}

TEST_F(AuditLogTamperTest, SwappedLeaves) {
  Sql("UPDATE leaves SET leaf_index = 1000 WHERE leaf_index = 2;"
      "UPDATE leaves SET leaf_index = 2 WHERE leaf_index = 3;"
      "UPDATE leaves SET leaf_index = 3 WHERE leaf_index = 1000");
  ExpectFrozen("another root");
}

TEST_F(AuditLogTamperTest, MissingLeaf) {
  Sql("DELETE FROM leaves WHERE leaf_index = 4");
  ExpectFrozen("a stored leaf is missing");
}

TEST_F(AuditLogTamperTest, TailCut) {
  Sql("DELETE FROM leaves WHERE leaf_index >= 7");
  ExpectFrozen("fewer");
}

TEST_F(AuditLogTamperTest, TailCutWithItsHeads) {
  Sql("DELETE FROM leaves WHERE leaf_index >= 7; DELETE FROM heads WHERE tree_size > 7");
  ExpectFrozen("fewer than the published head");
}

TEST_F(AuditLogTamperTest, LeafAddedWithoutAHead) {
  Sql("INSERT INTO leaves SELECT 10, leaf, leaf_hash FROM leaves WHERE leaf_index = 0");
  ExpectFrozen("no head signs");
}

TEST_F(AuditLogTamperTest, HeadsGone) {
  Sql("DELETE FROM heads");
  ExpectFrozen("no signed head");
}

TEST_F(AuditLogTamperTest, ChangedHead) {
  Sql("UPDATE heads SET checkpoint = replace(CAST(checkpoint AS TEXT), '10', '11') "
      "WHERE tree_size = 10");
  ExpectFrozen("last stored head");
}

TEST_F(AuditLogTamperTest, DatabaseGone) {
  for (const char* file : {"log.db", "log.db-wal", "log.db-shm"}) {
    std::filesystem::remove(Path(file));
  }
  ExpectFrozen("the database is empty");
}

TEST_F(AuditLogTamperTest, PublishedHeadGoneOrForeign) {
  std::filesystem::remove(Path("checkpoint"));
  ExpectFrozen("published head is missing");
  WriteFile(Path("checkpoint"), SignCheckpoint({"test.example/log", 3, Sha256Of("fork")}, *key_));
  ExpectFrozen("another root than the published head");
  WriteFile(Path("checkpoint"), "rubbish");
  ExpectFrozen("published head");
}

TEST_F(AuditLogTamperTest, OlderCopyRestored) {
  const std::string copy = ReadFile(Path("log.db"));
  {
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
    ASSERT_OK(log->Append(TestLeaf(20), "body"));
  }
  WriteFile(Path("log.db"), copy);
  std::filesystem::remove(Path("log.db-wal"));
  ExpectFrozen("fewer than the published head");
}

TEST_F(AuditLogTamperTest, TruncatedDatabaseIsRefusedOrFrozen) {
  const std::string database = ReadFile(Path("log.db"));
  int num_refused = 0;
  for (size_t size = 0; size < database.size(); size += 1024) {
    WriteFile(Path("log.db"), database.substr(0, size));
    const absl::StatusOr<std::unique_ptr<AuditLog>> log = AuditLog::Open(Options());
    EXPECT_FALSE(log.ok() && (*log)->frozen().ok()) << size;
    num_refused += log.ok() ? 0 : 1;
  }
  EXPECT_GT(num_refused, 0);
}

TEST_F(AuditLogTamperTest, FlippedBytesOfTheDatabaseNeverGoUnnoticedInLeavesAndHeads) {
  const std::string database = ReadFile(Path("log.db"));
  for (size_t at = 100; at < database.size(); at += 211) {
    std::string flipped = database;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
    WriteFile(Path("log.db"), flipped);
    const absl::StatusOr<std::unique_ptr<AuditLog>> log = AuditLog::Open(Options());
    if (!log.ok() || !(*log)->frozen().ok()) continue;
    // Nothing that the log signs was hit: an unused byte, a body, an older head.
    for (int i = 0; i < kNumLeaves; ++i) {
      ASSERT_OK_AND_ASSIGN(const std::string leaf, (*log)->Leaf(static_cast<uint64_t>(i)));
      EXPECT_EQ(leaf, TestLeaf(i)) << at;
    }
  }
}

TEST_F(AuditLogTamperTest, TamperedWhileRunningIsNoticedAtThePowerOfTwo) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
  const std::string before = ReadFile(Path("log.db"));
  // The leaves' pages under the running process: version "0.0.2" becomes "0.0.3" in the file.
  std::string changed = before;
  for (size_t at = changed.find("0.0.2"); at != std::string::npos;
       at = changed.find("0.0.2", at + 1)) {
    changed[at + 4] = '3';
  }
  ASSERT_NE(changed, before);
  {
    std::fstream file(Path("log.db"), std::ios::in | std::ios::out | std::ios::binary);
    file.write(changed.data(), static_cast<std::streamsize>(changed.size()));
  }
  // SQLite's page cache may still hold the old pages, so only "no wrong root is signed" is certain.
  bool frozen = false;
  for (int i = kNumLeaves; i < 16 && !frozen; ++i) {
    frozen = !log->Append(TestLeaf(i), "body").ok();
  }
  if (!frozen) {
    ASSERT_OK_AND_ASSIGN(const std::string note, log->SignedCheckpoint());
    ASSERT_OK_AND_ASSIGN(const Checkpoint head, OpenCheckpoint(note, log->verifier_key()));
    MerkleTree tree;
    for (int i = 0; i < 16; ++i) tree.Append(MerkleLeafHash(TestLeaf(i)));
    EXPECT_EQ(head.root_hash, tree.Root());
  }
}

// An export as a third party keeps it: the leaves in order and the checkpoint.
TEST_F(AuditLogTamperTest, EveryFlippedBitOfAnExportIsDetected) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
  ASSERT_OK_AND_ASSIGN(const std::string note, log->SignedCheckpoint());
  const VerifierKey vkey = log->verifier_key();
  std::vector<Sha256Digest> hashes;
  for (int i = 0; i < kNumLeaves; ++i) hashes.push_back(MerkleLeafHash(TestLeaf(i)));
  const auto root_with = [&hashes](size_t index, const Sha256Digest& hash) {
    MerkleTree tree;
    for (size_t i = 0; i < hashes.size(); ++i) tree.Append(i == index ? hash : hashes[i]);
    return tree.Root();
  };
  ASSERT_OK_AND_ASSIGN(const Checkpoint head, OpenCheckpoint(note, vkey));
  ASSERT_EQ(root_with(hashes.size(), {}), head.root_hash);
  for (int i = 0; i < kNumLeaves; ++i) {
    const std::string leaf = TestLeaf(i);
    for (size_t bit = 0; bit < leaf.size() * 8; ++bit) {
      std::string flipped = leaf;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
      ASSERT_NE(root_with(static_cast<size_t>(i), MerkleLeafHash(flipped)), head.root_hash);
    }
  }
  for (size_t bit = 0; bit < note.size() * 8; ++bit) {
    std::string flipped = note;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FALSE(OpenCheckpoint(flipped, vkey).ok()) << bit;
  }
}

TEST_F(AuditLogTamperTest, EveryFlippedBitAndEveryCutOfAProofFileIsDetected) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<AuditLog> log, AuditLog::Open(Options()));
  const VerifierKey vkey = log->verifier_key();
  ASSERT_OK_AND_ASSIGN(const std::string file, log->ProofFile(6));
  const Sha256Digest leaf_hash = MerkleLeafHash(TestLeaf(6));
  const auto verifies = [&](const std::string& bytes) {
    const absl::StatusOr<TlogProof> proof = ParseTlogProof(bytes);
    if (!proof.ok() || proof->extra.has_value()) return false;
    const absl::StatusOr<Checkpoint> head = OpenCheckpoint(proof->checkpoint, vkey);
    if (!head.ok()) return false;
    return VerifyInclusion({proof->leaf_index, head->tree_size, leaf_hash, head->root_hash},
                           proof->hashes)
        .ok();
  };
  ASSERT_TRUE(verifies(file));
  for (size_t bit = 0; bit < file.size() * 8; ++bit) {
    std::string flipped = file;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(verifies(flipped)) << bit;
  }
  for (size_t size = 0; size < file.size(); ++size) EXPECT_FALSE(verifies(file.substr(0, size)));
}

}  // namespace
}  // namespace lethe::audit
