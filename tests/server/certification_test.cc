// Goal: a Forget changes state, openings, stored answers and log together or not at all; records
// and bundles verify offline; a passed state's bundle is refused.
// Method: a tiny model, a real log on disk, the auditor's verifier as oracle.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "audit/certificate/keys.h"
#include "audit/certificate/verify.h"
#include "server/certification/certifier.h"
#include "server/certification/forgetter.h"
#include "server/certification/partition.h"
#include "server/error/error_info.h"
#include "server/generation/ingest.h"
#include "tests/server/serving_testing.h"
#include "tests/testing/status_matchers.h"

namespace lethe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::string ReasonOf(const absl::Status& status) {
  return GetErrorInfo(status).value_or(ErrorInfo{}).reason;
}

class CertificationTest : public ::testing::Test {
 protected:
  CertificationTest() {
    Append("patient A takes warfarin. ", "patient-a");
    Append(std::string(200, 'x') + "a few words more, and more, and more", "");
  }
  void Append(const std::string& text, const std::string& subject) {
    ASSERT_OK(AppendInputs({TinyModel()->Tokenize(text), subject, {}}, call_, &scheduler_, entry_));
  }
  ForgetCommand ForgetOf(const ForgetSelector& selector) {
    ForgetCommand command;
    command.selector = selector;
    command.policy = DerivedPolicy::kKeepAndReport;
    return command;
  }
  absl::StatusOr<ForgetReceipt> Run(const ForgetCommand& command) {
    return ForgetInputs(command, call_, &scheduler_, trail_.trail, entry_);
  }
  absl::StatusOr<CertifyReceipt> RunCertify(const CertifyCommand& command) {
    return Certify(command, call_, &scheduler_, trail_.trail, entry_);
  }
  audit::TrustStore Trust() const {
    const auto keys = audit::ServerKeys::LoadOrCreate(trail_.directory.path() + "/data/keys");
    return *keys->Trust("lethe.dev/audit/test");
  }
  void ExpectVerifies(const CertificateText& text, const std::string& bundle) {
    audit::CertificateFiles files;
    files.envelope = text.envelope;
    files.proof_file = text.log_proof;
    if (!text.opening.empty()) files.opening = text.opening;
    if (!bundle.empty()) files.bundle = bundle;
    const audit::VerifyReport report = audit::VerifyCertificate(files, Trust());
    const audit::Check* failure = report.first_failure();
    EXPECT_TRUE(report.ok()) << (failure == nullptr ? "" : failure->name + ": " + failure->detail);
  }

  FakeCall call_;
  ComputeScheduler scheduler_{1};
  SessionRegistry registry_{10};
  std::shared_ptr<SessionEntry> entry_ = NewEntry(&registry_);
  TestTrail trail_;
};

TEST_F(CertificationTest, ForgetIsRecordedAndItsCertificateVerifies) {
  ASSERT_OK_AND_ASSIGN(const ForgetReceipt receipt,
                       Run(ForgetOf(ForgetSelector::Subject("patient-a"))));
  EXPECT_EQ(receipt.num_forgotten, 26);
  EXPECT_THAT(receipt.forgotten, ElementsAre(TokenIdRange{1, 27}));
  EXPECT_EQ(*receipt.digest_after, FreshDigest(HistoryOf(entry_)));
  EXPECT_EQ(receipt.record->seq, 1u);
  EXPECT_EQ(entry_->Info().audit_seq, 1u);
  EXPECT_EQ(entry_->Info().num_forgotten, 26);
  ASSERT_OK_AND_ASSIGN(const FetchedCertificate fetched,
                       GetCertificate(1, true, call_, &scheduler_, trail_.trail, entry_));
  EXPECT_THAT(fetched.certificate.opening, Not(IsEmpty()));
  ExpectVerifies(fetched.certificate, fetched.bundle);
}

TEST_F(CertificationTest, CertifyVerifiesWithItsBundle) {
  CertifyCommand command;
  command.include_bundle = true;
  command.nonce = std::string(16, 'n');
  ASSERT_OK_AND_ASSIGN(const CertifyReceipt receipt, RunCertify(command));
  ASSERT_THAT(receipt.heads, SizeIs(1));
  EXPECT_EQ(receipt.heads[0].head, "layer.1.group.0.head.0");
  EXPECT_EQ(receipt.heads[0].num_keys, 256);
  ASSERT_TRUE(receipt.heads[0].bounds.has_value());
  EXPECT_GE(receipt.heads[0].bounds->gap, 0.0);
  EXPECT_LT(receipt.heads[0].bounds->gap, 1e-9);
  EXPECT_EQ(*receipt.digest, DigestOf(entry_));
  ExpectVerifies(receipt.certificate, receipt.bundle);
}

TEST_F(CertificationTest, CertifyOfAnEmptySessionVerifies) {
  entry_ = NewEntry(&registry_);
  CertifyCommand command;
  command.include_bundle = true;
  ASSERT_OK_AND_ASSIGN(const CertifyReceipt receipt, RunCertify(command));
  EXPECT_FALSE(receipt.heads[0].bounds.has_value());
  ExpectVerifies(receipt.certificate, receipt.bundle);
}

TEST_F(CertificationTest, ForgetDestroysEarlierOpeningsAndDigests) {
  CertifyCommand certify;
  certify.request = Key("certify");
  ASSERT_OK(RunCertify(certify));
  ForgetCommand first = ForgetOf(ForgetSelector::Ids({30}));
  first.request = Key("first");
  ASSERT_OK(Run(first));
  ASSERT_OK(Run(ForgetOf(ForgetSelector::Ids({31}))));
  for (const uint64_t seq : {1u, 2u}) {
    ASSERT_OK_AND_ASSIGN(const FetchedCertificate old,
                         GetCertificate(seq, false, call_, &scheduler_, trail_.trail, entry_));
    EXPECT_THAT(old.certificate.opening, IsEmpty());
    ExpectVerifies(old.certificate, "");
  }
  ASSERT_OK_AND_ASSIGN(const CertifyReceipt repeated, RunCertify(certify));
  EXPECT_EQ(repeated.certificate.ref.seq, 1u);
  EXPECT_FALSE(repeated.digest.has_value());
  ASSERT_OK_AND_ASSIGN(const ForgetReceipt again, Run(first));
  EXPECT_TRUE(again.repeated_request);
  EXPECT_FALSE(again.digest_after.has_value());
  EXPECT_EQ(again.record->seq, 2u);
}

TEST_F(CertificationTest, RepeatedForgetReturnsTheSameReceipt) {
  ForgetCommand command = ForgetOf(ForgetSelector::Ids({30}));
  command.request = Key("f");
  ASSERT_OK_AND_ASSIGN(const ForgetReceipt first, Run(command));
  ASSERT_OK_AND_ASSIGN(const ForgetReceipt second, Run(command));
  EXPECT_FALSE(first.repeated_request);
  EXPECT_TRUE(second.repeated_request);
  EXPECT_EQ(first.digest_after, second.digest_after);
  EXPECT_EQ(second.record->leaf_index, first.record->leaf_index);
  EXPECT_EQ(trail_.data->log()->num_leaves(), 1u);
}

TEST_F(CertificationTest, NothingChangesWhenTheRecordCannotBeWritten) {
  const auto digest = DigestOf(entry_);
  ForgetCommand command = ForgetOf(ForgetSelector::Subject("patient-a"));
  command.nonce = "short";  // the recorder refuses it; the edge did not look
  const auto refused = Run(command);
  EXPECT_FALSE(refused.ok());
  EXPECT_EQ(ReasonOf(refused.status()), "AUDIT_LOG");
  EXPECT_EQ(DigestOf(entry_), digest);
  EXPECT_EQ(trail_.data->log()->num_leaves(), 0u);
  EXPECT_EQ(entry_->Info().num_forgotten, 0);
}

TEST_F(CertificationTest, CancelledForgetChangesNothing) {
  const auto digest = DigestOf(entry_);
  call_.cancelled = true;
  EXPECT_THAT(Run(ForgetOf(ForgetSelector::Subject("patient-a"))),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(DigestOf(entry_), digest);
}

TEST_F(CertificationTest, ValidateOnlyTellsAndChangesNothing) {
  const auto digest = DigestOf(entry_);
  ForgetCommand command = ForgetOf(ForgetSelector::Subject("patient-a"));
  command.validate_only = true;
  ASSERT_OK_AND_ASSIGN(const ForgetReceipt receipt, Run(command));
  EXPECT_EQ(receipt.num_forgotten, 26);
  EXPECT_EQ(receipt.num_reevaluated, 1);
  EXPECT_GT(receipt.num_replayed, 200);
  EXPECT_GT(receipt.num_local_reevaluated, 0);
  EXPECT_FALSE(receipt.record.has_value());
  EXPECT_THAT(receipt.methods, SizeIs(5));
  EXPECT_EQ(receipt.methods[0].group, "layer.1.group.0.sv");
  EXPECT_TRUE(receipt.methods[0].bounded);
  EXPECT_EQ(receipt.methods[0].method, audit::LayerMethod::kDecremental);
  EXPECT_EQ(receipt.methods[1].method, audit::LayerMethod::kReplay);
  EXPECT_EQ(DigestOf(entry_), digest);
}

TEST_F(CertificationTest, RefusalsCarryReasons) {
  const auto digest = DigestOf(entry_);
  EXPECT_EQ(ReasonOf(Run(ForgetOf(ForgetSelector::Ids({30, 9999}))).status()), "INPUT_NOT_FOUND");
  EXPECT_EQ(ReasonOf(Run(ForgetOf(ForgetSelector::Subject("nobody"))).status()), "INPUT_NOT_FOUND");
  EXPECT_EQ(ReasonOf(Run(ForgetOf(ForgetSelector::Before(1))).status()), "INVALID_SELECTION");
  EXPECT_EQ(ReasonOf(GetCertificate(0, false, call_, &scheduler_, trail_.trail, entry_).status()),
            "RECORD_NOT_FOUND");
  EXPECT_EQ(DigestOf(entry_), digest);
}

TEST_F(CertificationTest, BundleOfAPassedStateIsRefused) {
  ASSERT_OK(RunCertify({}));
  Append("more", "");
  EXPECT_EQ(ReasonOf(GetCertificate(1, true, call_, &scheduler_, trail_.trail, entry_).status()),
            "EPOCH_PASSED");
  EXPECT_OK(GetCertificate(1, false, call_, &scheduler_, trail_.trail, entry_));
  ASSERT_OK(Run(ForgetOf(ForgetSelector::Ids({30}))));
  EXPECT_EQ(ReasonOf(GetCertificate(1, true, call_, &scheduler_, trail_.trail, entry_).status()),
            "EPOCH_PASSED");
  EXPECT_OK(GetCertificate(2, true, call_, &scheduler_, trail_.trail, entry_));
}

TEST_F(CertificationTest, PartitionRowsSatisfyTheOptimalityConditions) {
  PartitionQuery query{"", 100, ""};
  std::vector<PartitionEntry> rows;
  double mass = 0.0;
  do {
    ASSERT_OK_AND_ASSIGN(const PartitionPage page,
                         ListPartition(query, call_, &scheduler_, entry_));
    rows.insert(rows.end(), page.rows.begin(), page.rows.end());
    query.page_token = page.next_page_token;
    mass = page.mass;
  } while (!query.page_token.empty());
  ASSERT_THAT(rows, SizeIs(256));
  EXPECT_EQ(mass, 8.0);
  double sum = 0.0;
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].token_id, i + 1);
    sum += rows[i].alpha;
    if (rows[i].partition == svdd::Partition::kMargin) {
      EXPECT_NEAR(rows[i].g, 0.0, 1e-9);
    } else if (rows[i].partition == svdd::Partition::kError) {
      EXPECT_LE(rows[i].g, 1e-9);
      EXPECT_EQ(rows[i].alpha, 1.0 / 8.0);
    } else {
      EXPECT_GE(rows[i].g, -1e-9);
      EXPECT_EQ(rows[i].alpha, 0.0);
    }
  }
  EXPECT_NEAR(sum, 1.0, 1e-12);
}

TEST_F(CertificationTest, PartitionPagesEndWhenTheSessionChanges) {
  ASSERT_OK_AND_ASSIGN(const PartitionPage page,
                       ListPartition({"", 10, ""}, call_, &scheduler_, entry_));
  Append("x", "");
  EXPECT_EQ(
      ReasonOf(ListPartition({"", 10, page.next_page_token}, call_, &scheduler_, entry_).status()),
      "HISTORY_CHANGED");
  EXPECT_EQ(ReasonOf(ListPartition({"no-head", 10, ""}, call_, &scheduler_, entry_).status()),
            "HEAD_NOT_FOUND");
}

TEST(DataDirectoryTest, SecondOpenIsRefusedAndKeysAreKept) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/data";
  std::string spki;
  {
    ASSERT_OK_AND_ASSIGN(const auto data, DataDirectory::Open(path, "lethe.dev/audit/test"));
    spki = data->record_spki();
    EXPECT_THAT(DataDirectory::Open(path, "lethe.dev/audit/test"),
                StatusIs(absl::StatusCode::kFailedPrecondition, "another lethe-server"));
  }
  ASSERT_OK_AND_ASSIGN(const auto again, DataDirectory::Open(path, "lethe.dev/audit/test"));
  EXPECT_EQ(again->record_spki(), spki);
}

}  // namespace
}  // namespace lethe::testing
