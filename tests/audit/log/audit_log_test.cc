// Goal: appended leaves survive restarts with proofs that verify; one owner at a time; bodies can
// be erased without a trace; threads may append together; a failed write never leaves a false
// success.
// Method: a log in a temporary directory, reopened; a byte scan of its files; file size limits as
// the fault.
#include "audit/log/audit_log.h"

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit/log/checkpoint.h"
#include "audit/log/leaf.h"
#include "audit/log/merkle_tree.h"
#include "audit/log/merkle_verify.h"
#include "audit/log/tlog_proof.h"
#include "tests/audit/log/log_testing.h"
#include "tests/audit/temp_directory.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;

class AuditLogTest : public ::testing::Test {
 protected:
  AuditLogOptions Options() const { return {directory_.path() + "/log", "test.example/log", key_}; }
  std::unique_ptr<AuditLog> Open() const {
    absl::StatusOr<std::unique_ptr<AuditLog>> log = AuditLog::Open(Options());
    EXPECT_OK(log);
    return *std::move(log);
  }
  // Whether the proof file shows this leaf under the log's key.
  absl::Status Check(const std::string& proof_file, const Sha256Digest& leaf_hash) const {
    LETHE_ASSIGN_OR_RETURN(const TlogProof proof, ParseTlogProof(proof_file));
    LETHE_ASSIGN_OR_RETURN(const VerifierKey vkey,
                           MakeVerifierKey("test.example/log", key_->public_key()));
    LETHE_ASSIGN_OR_RETURN(const Checkpoint head, OpenCheckpoint(proof.checkpoint, vkey));
    return VerifyInclusion({proof.leaf_index, head.tree_size, leaf_hash, head.root_hash},
                           proof.hashes);
  }

  const TempDirectory directory_;
  const std::shared_ptr<const Ed25519PrivateKey> key_ = TestLogKey();
};

TEST_F(AuditLogTest, EmptyLogHasASignedHead) {
  const std::unique_ptr<AuditLog> log = Open();
  ASSERT_OK_AND_ASSIGN(const std::string note, log->SignedCheckpoint());
  ASSERT_OK_AND_ASSIGN(const Checkpoint head, OpenCheckpoint(note, log->verifier_key()));
  EXPECT_EQ(head.tree_size, 0u);
  EXPECT_EQ(head.root_hash, MerkleEmptyRoot());
  EXPECT_EQ(ReadFile(directory_.path() + "/log/checkpoint"), note);
}

TEST_F(AuditLogTest, ProofsOfEveryLeafVerifyAndSurviveARestart) {
  constexpr int kNumLeaves = 40;
  std::vector<Sha256Digest> hashes;
  std::vector<std::string> heads;
  {
    const std::unique_ptr<AuditLog> log = Open();
    for (int i = 0; i < kNumLeaves; ++i) {
      ASSERT_OK_AND_ASSIGN(const AppendedLeaf appended,
                           log->Append(TestLeaf(i), "body " + std::to_string(i)));
      EXPECT_EQ(appended.leaf_index, static_cast<uint64_t>(i));
      EXPECT_EQ(appended.leaf_hash, MerkleLeafHash(TestLeaf(i)));
      EXPECT_OK(Check(appended.proof_file, appended.leaf_hash));
      hashes.push_back(appended.leaf_hash);
      ASSERT_OK_AND_ASSIGN(const std::string head, log->SignedCheckpoint());
      heads.push_back(head);
    }
  }
  const std::unique_ptr<AuditLog> log = Open();
  EXPECT_OK(log->frozen());
  EXPECT_OK(log->Recheck());
  EXPECT_EQ(log->num_leaves(), static_cast<uint64_t>(kNumLeaves));
  for (int i = 0; i < kNumLeaves; ++i) {
    const auto leaf_index = static_cast<uint64_t>(i);
    ASSERT_OK_AND_ASSIGN(const std::string proof, log->ProofFile(leaf_index));
    EXPECT_OK(Check(proof, hashes[leaf_index]));
    ASSERT_OK_AND_ASSIGN(const std::string leaf, log->Leaf(leaf_index));
    EXPECT_EQ(leaf, TestLeaf(i));
    ASSERT_OK_AND_ASSIGN(const uint64_t found, log->FindLeaf(hashes[leaf_index]));
    EXPECT_EQ(found, leaf_index);
    ASSERT_OK_AND_ASSIGN(const std::string body, log->Body(hashes[leaf_index]));
    EXPECT_EQ(body, "body " + std::to_string(i));
    // Every head that was ever signed is consistent with the newest.
    ASSERT_OK_AND_ASSIGN(const Checkpoint old_head,
                         OpenCheckpoint(heads[leaf_index], log->verifier_key()));
    ASSERT_OK_AND_ASSIGN(const Checkpoint new_head,
                         OpenCheckpoint(heads.back(), log->verifier_key()));
    ASSERT_OK_AND_ASSIGN(const std::vector<Sha256Digest> path,
                         log->ConsistencyProof(old_head.tree_size, new_head.tree_size));
    EXPECT_OK(VerifyConsistency(
        {old_head.tree_size, new_head.tree_size, old_head.root_hash, new_head.root_hash}, path));
  }
}

TEST_F(AuditLogTest, UnknownThingsAreNotFound) {
  const std::unique_ptr<AuditLog> log = Open();
  EXPECT_THAT(log->Leaf(0), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(log->FindLeaf(Sha256Of("x")), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(log->Body(Sha256Of("x")), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(log->EraseBody(Sha256Of("x")), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(log->ProofFile(0), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(log->ConsistencyProof(1, 1), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(log->Append("short", ""), StatusIs(absl::StatusCode::kInvalidArgument, "406"));
  EXPECT_EQ(log->num_leaves(), 0u);
}

TEST_F(AuditLogTest, ASecondOwnerIsRefused) {
  const std::unique_ptr<AuditLog> log = Open();
  EXPECT_THAT(AuditLog::Open(Options()), StatusIs(absl::StatusCode::kFailedPrecondition, "in use"));
  // The same from another process.
  const pid_t child = fork();
  if (child == 0) {
    const absl::StatusOr<std::unique_ptr<AuditLog>> second = AuditLog::Open(Options());
    _exit(absl::IsFailedPrecondition(second.status()) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(AuditLogTest, WithoutTheLockFileSqliteRefusesTheSecondOwner) {
  const std::unique_ptr<AuditLog> log = Open();
  ASSERT_OK(log->Append(TestLeaf(0), "body"));
  std::filesystem::remove(directory_.path() + "/log/log.lock");
  EXPECT_THAT(AuditLog::Open(Options()), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(AuditLogTest, AnotherKeyOrOriginIsRefused) {
  Open();
  AuditLogOptions options = Options();
  options.key = std::make_shared<const Ed25519PrivateKey>(Ed25519PrivateKey::Generate());
  EXPECT_THAT(AuditLog::Open(options), StatusIs(absl::StatusCode::kFailedPrecondition, "key"));
  options = Options();
  options.origin = "test.example/other";
  EXPECT_THAT(AuditLog::Open(options), StatusIs(absl::StatusCode::kFailedPrecondition, "origin"));
  options.origin = "has space";
  EXPECT_THAT(AuditLog::Open(options), StatusIs(absl::StatusCode::kInvalidArgument, "key name"));
  options.key = nullptr;
  EXPECT_THAT(AuditLog::Open(options), StatusIs(absl::StatusCode::kInvalidArgument, "key"));
}

TEST_F(AuditLogTest, AnErasedBodyLeavesNoByteAndTheLeafStays) {
  const std::string secret = "incompressible marker 9f8e7d6c5b4a39281706";
  const std::unique_ptr<AuditLog> log = Open();
  for (int i = 0; i < 20; ++i) ASSERT_OK(log->Append(TestLeaf(i), "filler " + std::to_string(i)));
  ASSERT_OK_AND_ASSIGN(const AppendedLeaf appended, log->Append(TestLeaf(100), secret));
  const auto files_with_secret = [&] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path() + "/log")) {
      if (ReadFile(entry.path().string()).find(secret) != std::string::npos) ++count;
    }
    return count;
  };
  EXPECT_GT(files_with_secret(), 0);  // positive control
  ASSERT_OK(log->EraseBody(appended.leaf_hash));
  EXPECT_EQ(files_with_secret(), 0);
  EXPECT_THAT(log->Body(appended.leaf_hash), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_OK(log->EraseBody(appended.leaf_hash));  // again: nothing to do
  ASSERT_OK_AND_ASSIGN(const std::string proof, log->ProofFile(appended.leaf_index));
  EXPECT_OK(Check(proof, appended.leaf_hash));
  EXPECT_OK(log->Recheck());
}

TEST_F(AuditLogTest, ThreadsAppendTogether) {
  const std::unique_ptr<AuditLog> log = Open();
  constexpr int kThreads = 4;
  constexpr int kEach = 8;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&log, t, this] {
      for (int i = 0; i < kEach; ++i) {
        const int number = t * kEach + i;
        const absl::StatusOr<AppendedLeaf> appended = log->Append(TestLeaf(number), "body");
        EXPECT_OK(appended);
        EXPECT_OK(Check(appended->proof_file, appended->leaf_hash));
        EXPECT_OK(log->ProofFile(appended->leaf_index));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(log->num_leaves(), static_cast<uint64_t>(kThreads * kEach));
  EXPECT_OK(log->Recheck());
}

// The disk refuses to grow at every size in turn: an append then fails or succeeds, and after a
// restart the log holds exactly the acknowledged leaves, or one more when the failure came after
// the commit.
TEST_F(AuditLogTest, AFullDiskNeverGivesAFalseSuccess) {
  int num_failures = 0;
  for (rlim_t limit = 1000; limit < 90000; limit += 7000) {
    std::filesystem::remove_all(directory_.path() + "/log");
    uint64_t num_acknowledged = 0;
    {
      const std::unique_ptr<AuditLog> log = Open();
      for (int i = 0; i < 3; ++i) {
        ASSERT_OK(log->Append(TestLeaf(i), std::string(2000, 'b')));
        ++num_acknowledged;
      }
      struct rlimit old_limit;
      ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
      const auto old_handler = signal(SIGXFSZ, SIG_IGN);
      const struct rlimit small = {limit, old_limit.rlim_max};
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
      for (int i = 3; i < 8; ++i) {
        const absl::StatusOr<AppendedLeaf> appended =
            log->Append(TestLeaf(i), std::string(2000, 'b'));
        if (!appended.ok()) {
          ++num_failures;
          break;
        }
        ++num_acknowledged;
      }
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
      signal(SIGXFSZ, old_handler);
    }
    const std::unique_ptr<AuditLog> log = Open();
    EXPECT_OK(log->frozen()) << limit;
    EXPECT_GE(log->num_leaves(), num_acknowledged) << limit;
    EXPECT_LE(log->num_leaves(), num_acknowledged + 1) << limit;
    EXPECT_OK(log->Append(TestLeaf(50), "body"));
  }
  EXPECT_GT(num_failures, 3);
}

}  // namespace
}  // namespace lethe::audit
