// Goal: with an audit log that takes no record nothing is certified or forgotten, and the error says
// so with reason AUDIT_LOG.
// Method: the log's published head is spoiled and the log rechecks itself (frozen), or a new head
// cannot be published (an append fails at its end).
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/certification/certifier.h"
#include "server/certification/forgetter.h"
#include "server/error/error_info.h"
#include "server/generation/ingest.h"
#include "tests/server/serving_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

std::string ReasonOf(const absl::Status& status) {
  return GetErrorInfo(status).value_or(ErrorInfo{}).reason;
}

class AuditLogFailureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(AppendInputs({TinyModel()->Tokenize("a patient takes warfarin"), "patient", {}},
                           call_, &scheduler_, entry_));
    ASSERT_OK(RunCertify());
    digest_ = DigestOf(entry_);
  }
  absl::StatusOr<CertifyReceipt> RunCertify() {
    CertifyCommand command;
    command.include_bundle = true;
    return Certify(command, call_, &scheduler_, trail_.trail, entry_);
  }
  absl::StatusOr<ForgetReceipt> RunForget() {
    ForgetCommand command;
    command.selector = ForgetSelector::Subject("patient");
    command.policy = DerivedPolicy::kForgetDerived;
    return ForgetInputs(command, call_, &scheduler_, trail_.trail, entry_);
  }
  std::string LogPath() const { return trail_.directory.path() + "/data/log"; }
  void FreezeLog() {
    std::ofstream(LogPath() + "/checkpoint", std::ios::trunc) << "not a checkpoint\n";
    EXPECT_THAT(trail_.data->log()->Recheck(), StatusIs(absl::StatusCode::kDataLoss));
    ASSERT_FALSE(trail_.data->log()->frozen().ok());
  }
  void ExpectUntouched() {
    EXPECT_EQ(DigestOf(entry_), digest_);
    EXPECT_EQ(entry_->Info().num_forgotten, 0);
    EXPECT_EQ(entry_->Info().audit_seq, 1u);
  }

  FakeCall call_;
  ComputeScheduler scheduler_{1};
  SessionRegistry registry_{10};
  std::shared_ptr<SessionEntry> entry_ = NewEntry(&registry_);
  TestTrail trail_;
  audit::Sha256Digest digest_{};
};

TEST_F(AuditLogFailureTest, AFrozenLogCertifiesNothing) {
  FreezeLog();
  const auto certified = RunCertify();
  EXPECT_THAT(certified, StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(ReasonOf(certified.status()), "AUDIT_LOG");
  const auto fetched = GetCertificate(1, false, call_, &scheduler_, trail_.trail, entry_);
  EXPECT_THAT(fetched, StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(ReasonOf(fetched.status()), "AUDIT_LOG");
  ExpectUntouched();
}

TEST_F(AuditLogFailureTest, AFrozenLogForgetsNothing) {
  FreezeLog();
  const auto forgotten = RunForget();
  EXPECT_THAT(forgotten, StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(ReasonOf(forgotten.status()), "AUDIT_LOG");
  ExpectUntouched();
  // The session serves on.
  EXPECT_OK(AppendInputs({TinyModel()->Tokenize("more"), "", {}}, call_, &scheduler_, entry_));
}

TEST_F(AuditLogFailureTest, AnAppendThatFailsChangesNoSession) {
  // The new head cannot be published: a directory stands in its place.
  std::filesystem::create_directory(LogPath() + "/checkpoint.new");
  const auto certified = RunCertify();
  EXPECT_FALSE(certified.ok());
  EXPECT_EQ(ReasonOf(certified.status()), "AUDIT_LOG");
  const auto forgotten = RunForget();
  EXPECT_FALSE(forgotten.ok());
  EXPECT_EQ(ReasonOf(forgotten.status()), "AUDIT_LOG");
  ExpectUntouched();
  EXPECT_FALSE(trail_.data->log()->frozen().ok());
}

}  // namespace
}  // namespace lethe::testing
