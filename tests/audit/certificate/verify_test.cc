// Goal: right certificates verify with every check ok; keys count only from the trust file;
// sequences of a session are checked; the openssl program accepts the signatures.
// Method: the records of CertificateWorld, with and without opening and bundle.
#include "audit/certificate/verify.h"

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "audit/certificate/dsse.h"
#include "audit/crypto/encoding.h"
#include "audit/log/note.h"
#include "audit/log/tlog_proof.h"
#include "tests/audit/certificate/certificate_world.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

std::string Failure(const VerifyReport& report) {
  const Check* failure = report.first_failure();
  return failure == nullptr ? "" : failure->name + ": " + failure->detail;
}

TEST(VerifyCertificateTest, EveryCheckOfACompleteCertificateIsOk) {
  const CertificateWorld& world = SharedWorld();
  const VerifyReport report = VerifyCertificate(world.Files(CertificateWorld::kCertifyRecord, true),
                                                world.trust(), {kTestNonce});
  EXPECT_TRUE(report.ok()) << Failure(report);
  ASSERT_EQ(report.checks.size(), std::size(kCheckNames));
  for (size_t i = 0; i < report.checks.size(); ++i) {
    const Check& check = report.checks[i];
    EXPECT_EQ(check.name, kCheckNames[i]);
    const bool unchecked = check.name == "state replay" || check.name == "forgotten set" ||
                           check.name == "derived set";
    EXPECT_EQ(check.result, unchecked ? CheckResult::kNotChecked : CheckResult::kOk)
        << check.name << ": " << check.detail;
    if (unchecked) {
      EXPECT_FALSE(check.detail.empty()) << check.name;
    }
  }
  EXPECT_EQ(report.leaf_hash, world.record(CertificateWorld::kCertifyRecord).leaf_hash);
  EXPECT_EQ(report.leaf_index, 2u);
  ASSERT_TRUE(report.statement.has_value());
  EXPECT_EQ(report.statement->seq, 3u);
}

TEST(VerifyCertificateTest, AForgetCertificateVerifiesWithItsOpening) {
  const CertificateWorld& world = SharedWorld();
  const VerifyReport report = VerifyCertificate(world.Files(CertificateWorld::kForgetRecord, false),
                                                world.trust(), {kTestNonce});
  EXPECT_TRUE(report.ok()) << Failure(report);
  for (const char* name : {"subject digest", "retained set", "forgotten set", "derived set"}) {
    EXPECT_EQ(report.Find(name)->result, CheckResult::kOk) << name;
  }
  EXPECT_EQ(report.statement->forgot.count, 4u);
  EXPECT_EQ(report.statement->derived_kept.count, 1u);
}

TEST(VerifyCertificateTest, WithoutOpeningAndBundleTheRestIsOkAndSaysSo) {
  const CertificateWorld& world = SharedWorld();
  CertificateFiles files = world.Files(CertificateWorld::kCertifyRecord, false);
  files.opening.reset();
  const VerifyReport report = VerifyCertificate(files, world.trust());
  EXPECT_TRUE(report.ok()) << Failure(report);
  EXPECT_EQ(report.Find("nonce")->result, CheckResult::kNotChecked);
  EXPECT_EQ(report.Find("opening")->detail, "no opening given");
  EXPECT_EQ(report.Find("optimality")->detail, "no bundle given");
}

TEST(VerifyCertificateTest, ABundleWithoutItsOpeningFails) {
  const CertificateWorld& world = SharedWorld();
  CertificateFiles files = world.Files(CertificateWorld::kCertifyRecord, true);
  files.opening.reset();
  const VerifyReport report = VerifyCertificate(files, world.trust());
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(report.first_failure()->name, "bundle");
}

TEST(VerifyCertificateTest, NewerProofFilesVerifyToo) {
  CertificateWorld& world = SharedWorld();
  CertificateFiles files = world.Files(CertificateWorld::kForgetRecord, false);
  world.Relog("{}", *world.keys().record_key, {});
  ASSERT_OK_AND_ASSIGN(files.proof_file, world.log()->ProofFile(1));
  ASSERT_OK_AND_ASSIGN(files.leaf, world.log()->Leaf(1));
  const VerifyReport report = VerifyCertificate(files, world.trust());
  EXPECT_TRUE(report.ok()) << Failure(report);
}

TEST(VerifyCertificateTest, KeysCountOnlyFromTheTrustFile) {
  const CertificateWorld& world = SharedWorld();
  const CertificateFiles files = world.Files(CertificateWorld::kCertifyRecord, true);
  TrustStore none;
  VerifyReport report = VerifyCertificate(files, none);
  EXPECT_EQ(report.first_failure()->name, "trust");
  EXPECT_EQ(report.first_failure()->detail, "no trusted key");
  TrustStore other = world.trust();
  other.record_keys[0].key = Ed25519PrivateKey::Generate().public_key();
  report = VerifyCertificate(files, other);
  EXPECT_EQ(report.first_failure()->name, "record key");
  EXPECT_EQ(report.first_failure()->detail, "no trusted key");
  other = world.trust();
  other.log_keys[0] =
      MakeVerifierKey(kTestOrigin, Ed25519PrivateKey::Generate().public_key()).value();
  report = VerifyCertificate(files, other);
  EXPECT_EQ(report.first_failure()->name, "checkpoint");
  EXPECT_EQ(report.first_failure()->detail, "no trusted key");
}

TEST(VerifyCertificateTest, KeysCountOnlyForTheirLeafIndices) {
  const CertificateWorld& world = SharedWorld();
  const CertificateFiles files = world.Files(CertificateWorld::kCertifyRecord, true);  // leaf 2
  for (const auto& [first, last, ok] :
       {std::tuple{0, 2, true}, {2, 2, true}, {0, 1, false}, {3, 9, false}}) {
    TrustStore trust = world.trust();
    trust.record_keys[0].first_leaf_index = static_cast<uint64_t>(first);
    trust.record_keys[0].last_leaf_index = static_cast<uint64_t>(last);
    const VerifyReport report = VerifyCertificate(files, trust);
    EXPECT_EQ(report.ok(), ok) << first << "-" << last;
    if (!ok) {
      EXPECT_EQ(report.first_failure()->name, "key range");
    }
  }
}

TEST(VerifySequenceTest, TheRecordsOfASessionFollowOneAnother) {
  const CertificateWorld& world = SharedWorld();
  const std::vector<CertificateFiles> files = {world.Files(0, false), world.Files(1, false),
                                               world.Files(2, true)};
  EXPECT_TRUE(VerifySequence(files, world.trust()).ok());
  EXPECT_TRUE(VerifySequence(absl::MakeConstSpan(files).subspan(1), world.trust()).ok());
  EXPECT_FALSE(VerifySequence({}, world.trust()).ok());
}

std::string FirstSequenceFailure(const std::vector<CertificateFiles>& files,
                                 const TrustStore& trust) {
  for (const Check& check : VerifySequence(files, trust).checks) {
    if (check.result == CheckResult::kFailed) return check.name;
  }
  return "";
}

TEST(VerifySequenceTest, GapsSwapsRepeatsAndBadRecordsAreRefused) {
  const CertificateWorld& world = SharedWorld();
  const CertificateFiles a = world.Files(0, false);
  const CertificateFiles b = world.Files(1, false);
  const CertificateFiles c = world.Files(2, false);
  EXPECT_EQ(FirstSequenceFailure({a, c}, world.trust()), "sequence numbers");
  EXPECT_EQ(FirstSequenceFailure({b, a, c}, world.trust()), "sequence numbers");
  EXPECT_EQ(FirstSequenceFailure({a, a}, world.trust()), "sequence numbers");
  CertificateFiles bad = b;
  bad.proof_file = a.proof_file;
  EXPECT_EQ(FirstSequenceFailure({a, bad, c}, world.trust()), "sequence records");
}

TEST(VerifySequenceTest, RecordsOfTwoSessionsAreRefused) {
  CertificateWorld& world = SharedWorld();
  SessionRecords other;
  Recorder recorder(world.keys(), world.log());
  RecordDraft draft = world.Draft(RecordKind::kCertify);
  draft.session_id = "session-2";
  ASSERT_OK(recorder.Record(draft, &other));
  ASSERT_OK_AND_ASSIGN(const FinishedRecord second, recorder.Record(draft, &other));
  const CertificateFiles foreign{second.envelope, second.proof_file, std::nullopt, second.opening,
                                 std::nullopt};
  EXPECT_EQ(FirstSequenceFailure({world.Files(0, false), foreign}, world.trust()),
            "sequence session");
}

class OpensslTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("openssl version >/dev/null 2>&1") != 0) {
      GTEST_SKIP() << "no openssl program on this machine";
    }
  }
  // The exit status of `openssl pkeyutl -verify` on these bytes.
  bool Accepts(const Ed25519PublicKey& key, absl::string_view message,
               absl::string_view signature) const {
    WriteFile(directory_.path() + "/key.pem", key.SpkiPem());
    WriteFile(directory_.path() + "/message", std::string(message));
    WriteFile(directory_.path() + "/signature", std::string(signature));
    const std::string command =
        absl::StrCat("cd ", directory_.path(),
                     " && openssl pkeyutl -verify -rawin -pubin -inkey key.pem -in message "
                     "-sigfile signature >/dev/null 2>&1");
    return std::system(command.c_str()) == 0;
  }
  const TempDirectory directory_;
};

TEST_F(OpensslTest, AcceptsTheEnvelopesAndTheCheckpointsSignature) {
  const CertificateWorld& world = SharedWorld();
  const CertificateFiles files = world.Files(CertificateWorld::kCertifyRecord, false);
  ASSERT_OK_AND_ASSIGN(const DsseEnvelope envelope, ParseEnvelope(files.envelope));
  const std::string pae = PreAuthEncoding(envelope.payload_type, envelope.payload);
  const Ed25519PublicKey& record_key = world.keys().record_key->public_key();
  EXPECT_TRUE(Accepts(record_key, pae, AsStringView(envelope.signature)));
  EXPECT_FALSE(Accepts(record_key, pae + " ", AsStringView(envelope.signature)));
  ASSERT_OK_AND_ASSIGN(const TlogProof proof, ParseTlogProof(files.proof_file));
  ASSERT_OK_AND_ASSIGN(const SignedNote note, ParseNote(proof.checkpoint));
  const Ed25519PublicKey& log_key = world.keys().log_key->public_key();
  EXPECT_TRUE(Accepts(log_key, note.text, note.signatures[0].signature));
  EXPECT_FALSE(Accepts(record_key, note.text, note.signatures[0].signature));
}

}  // namespace
}  // namespace lethe::audit
