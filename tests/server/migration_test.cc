// Goal: a session that was stored under another numerics id comes back with the digest of a fresh session there, before it
// is served or certified, and a signed migrate record of its sequence says so.
// Method: sessions of one arithmetic, opened in one with a constant changed (Fault::kConstantChanged); records checked by
// the offline verifier.
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "audit/certificate/verify.h"
#include "server/model/numerics_id.h"
#include "server/session_registry/resident_sessions.h"
#include "tests/server/durable_world.h"
#include "tests/testing/fault_switch.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

constexpr char kText[] =
    "the first visit of a patient was on a rainy day in the spring of that year";

class MigrationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(world_.Open());
    model_ = world_.NewModelSession()->session_id;
    ASSERT_OK(world_.Append(model_, kText, "", "a1"));
    ASSERT_OK(world_.Append(model_, "gone", "patient", "a2"));
    ASSERT_OK(world_.Forget(model_, "patient", "f1"));
    vectors_ = world_.NewVectorSession()->session_id;
    ASSERT_OK(world_.AppendRows(vectors_, 20, 1, "", "a1"));
    before_ = world_.View(model_);
    vectors_before_ = world_.View(vectors_);
  }
  // Of a session here that was given the same.
  audit::Sha256Digest FreshModelDigest() {
    const std::string fresh = world_.NewModelSession()->session_id;
    EXPECT_OK(world_.Append(fresh, kText, "", ""));
    return world_.View(fresh).digest;
  }
  // The session's records and what the verifier says of their sequence.
  audit::SequenceReport Verify(const std::string& session_id) {
    const std::string trust = audit::ReadFile(world_.data->trust_path());
    return audit::VerifySequence(world_.Records(session_id), audit::ParseTrust(trust).value());
  }

  DurableWorld world_;
  std::string model_;
  std::string vectors_;
  SessionView before_;
  SessionView vectors_before_;
};

TEST_F(MigrationTest, ASessionIsEvaluatedAgainAndARecordSaysSo) {
  const audit::Sha256Digest old_id = NumericsId();
  const ScopedFault other(Fault::kConstantChanged);
  ASSERT_NE(NumericsId(), old_id);
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.summary.num_moved, 2);
  EXPECT_EQ(world_.data->log()->num_leaves(), 1u);  // none until somebody uses them
  // The first use is a certificate: the record of the move comes before it.
  ASSERT_OK_AND_ASSIGN(const CertifyReceipt certified, world_.RunCertify(model_, "c1"));
  EXPECT_EQ(certified.certificate.ref.seq, 3u);
  const SessionView after = world_.View(model_);
  EXPECT_EQ(*certified.digest, after.digest);
  EXPECT_NE(after.digest, before_.digest);
  EXPECT_EQ(after.digest, FreshModelDigest());
  EXPECT_EQ(after.inputs, before_.inputs);
  EXPECT_EQ(after.next_token_id, before_.next_token_id);

  const audit::SequenceReport report = Verify(model_);
  EXPECT_TRUE(report.ok());
  ASSERT_EQ(report.records.size(), 3u);
  const audit::Statement& moved = *report.records[1].statement;
  EXPECT_EQ(moved.kind, audit::RecordKind::kMigrate);
  ASSERT_TRUE(moved.migrated_from.has_value());
  EXPECT_EQ(moved.migrated_from->numerics_id, old_id);
  EXPECT_EQ(moved.migrated_from->device_kind, kCpuDeviceKind);
  EXPECT_EQ(moved.engine.numerics_id, NumericsId());
  EXPECT_EQ(moved.retained.count, before_.inputs.size());
  EXPECT_EQ(report.records[0].statement->engine.numerics_id, old_id);

  // Once: a restart here finds a session of here.
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.summary.num_moved, 1);  // the vector session, still unused
  EXPECT_TRUE(world_.View(model_) == after);
  const uint64_t num_leaves = world_.data->log()->num_leaves();
  const SessionView vectors = world_.View(vectors_);
  EXPECT_NE(vectors.digest, vectors_before_.digest);
  EXPECT_EQ(world_.data->log()->num_leaves(), num_leaves + 1);
  EXPECT_TRUE(Verify(vectors_).ok());
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.summary.num_moved, 0);
  EXPECT_TRUE(world_.View(vectors_) == vectors);
  // A repeat is answered as before.
  ASSERT_OK_AND_ASSIGN(const ForgetReceipt again, world_.Forget(model_, "patient", "f1"));
  EXPECT_TRUE(again.repeated_request);
}

TEST_F(MigrationTest, TheWayBackIsAnotherMigration) {
  {
    const ScopedFault other(Fault::kConstantChanged);
    ASSERT_OK(world_.Open());
    world_.View(model_);
    world_.Close();
  }
  ASSERT_OK(world_.Open());
  EXPECT_EQ(world_.summary.num_moved, 1);  // the vector session never left
  EXPECT_EQ(world_.View(model_).digest, before_.digest);
  const audit::SequenceReport report = Verify(model_);
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.records.size(), 3u);
}

TEST_F(MigrationTest, ASnapshotOfOtherArithmeticIsNotUsed) {
  const std::string id = world_.NewModelSession()->session_id;
  std::string text;
  while (text.size() < 320) text += kText;
  ASSERT_OK(world_.Append(id, text, "", ""));
  EXPECT_EQ(SpillSessions(world_.registry(), [] { return true; }), 1);
  EXPECT_GT(world_.Find(id)->journal->num_snapshots(), 0);
  const ScopedFault other(Fault::kConstantChanged);
  ASSERT_OK(world_.Open());
  const SessionView moved = world_.View(id);
  EXPECT_EQ(world_.Find(id)->journal->num_snapshots(), 0);
  const std::string fresh = world_.NewModelSession()->session_id;
  ASSERT_OK(world_.Append(fresh, text, "", ""));
  EXPECT_EQ(moved.digest, world_.View(fresh).digest);
}

TEST_F(MigrationTest, WithoutTheRecordTheSessionIsNotServed) {
  const ScopedFault other(Fault::kConstantChanged);
  ASSERT_OK(world_.Open());
  // A log that takes nothing more.
  audit::WriteFile(world_.data_path() + "/log/checkpoint", "not a checkpoint\n");
  ASSERT_THAT(world_.data->log()->Recheck(), StatusIs(absl::StatusCode::kDataLoss));
  const std::shared_ptr<SessionEntry> entry = world_.Find(model_);
  FairMutexLock lock(&entry->mutex);
  EXPECT_EQ(ReasonOf(entry->LiveSession().status()), "AUDIT_LOG");
  EXPECT_EQ(entry->session, nullptr);
  EXPECT_OK(entry->Availability());  // it is not damaged
}

}  // namespace
}  // namespace lethe::testing
