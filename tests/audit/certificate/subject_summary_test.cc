// Goal: the summary of a ForgetSubject verifies alone and with its sessions' certificates; every single-field mutation of
// it and of its opening is refused, and so is every list of certificates but its own.
// Method: a recorder on a fresh log with two sessions of a job and one of none; the mutations of json_mutations.h, signed
// and logged by the trusted key itself: what the opening and the certificates bind must be caught.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "audit/certificate/dsse.h"
#include "audit/certificate/record_check.h"
#include "audit/certificate/verify_subject.h"
#include "audit/log/leaf.h"
#include "tests/audit/certificate/certificate_world.h"
#include "tests/audit/certificate/json_mutations.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;

constexpr char kJob[] = "abcdefghijklmnopqrstuvwxyz";
constexpr char kLabel[] = "patient-17";

class SubjectSummaryTest : public ::testing::Test {
 protected:
  SubjectSummaryTest() {
    for (const char* session : {"session-a", "session-b"}) {
      certificates_.push_back(Forget(session, absl::StrCat(kSubjectRequestPrefix, kJob)));
    }
    const FailedSession failed = {SubjectPseudonym(salt_, "session-c"), "DERIVED_TOKENS"};
    summary_.subject_digest = CommitSubject(salt_, kLabel);
    summary_.job = kJob;
    summary_.nonce = kTestNonce;
    summary_.request_id = "request-9";
    summary_.issued_at = "2026-11-30T12:34:56Z";
    summary_.binary = Sha256Of("binary");
    summary_.build = "lethe test build";
    summary_.algorithm = "lethe-canonical-v2";
    summary_.derived_policy = DerivedPolicy::kKeepAndReport;
    summary_.num_examined = 9;
    summary_.forgotten = CommitRecords(leaf_hashes_);
    summary_.num_inputs = 8;
    summary_.failed = CommitFailed({failed});
    summary_.reasons = CountReasons({failed});
    summary_.num_deleted = 1;
    summary_.num_unserved = 2;
    const FinishedSummary finished = recorder_.RecordSummary(summary_).value();
    std::sort(leaf_hashes_.begin(), leaf_hashes_.end());
    opening_ = WriteSubjectOpening({salt_, finished.leaf_hash, leaf_hashes_, {failed}}).value();
    files_.summary.envelope = finished.envelope;
    files_.summary.proof_file = finished.proof_file;
    files_.summary.opening = opening_;
    files_.label = kLabel;
  }

  CertificateFiles Forget(const std::string& session, const std::string& request_id) {
    RecordDraft draft = world_.Draft(RecordKind::kForget);
    draft.session_id = session;
    draft.request_id = request_id;
    SessionRecords records;
    const FinishedRecord record = recorder_.Record(draft, &records).value();
    leaf_hashes_.push_back(record.leaf_hash);
    CertificateFiles files;
    files.envelope = record.envelope;
    files.proof_file = record.proof_file;
    files.opening = record.opening;
    return files;
  }
  SubjectReport Verify(const SubjectFiles& files,
                       const std::vector<CertificateFiles>& certificates) const {
    return VerifySubject(files, certificates, world_.trust(), {kTestNonce});
  }
  static std::string FailureOf(const SubjectReport& report) {
    const Check* failure = report.record.first_failure();
    return failure == nullptr ? "" : failure->name;
  }
  static CheckResult ResultOf(const SubjectReport& report, const char* name) {
    return report.record.Find(name)->result;
  }
  // Signed and logged by the trusted keys; the opening is bound to the new leaf.
  SubjectFiles Relog(const std::string& payload) {
    const DsseEnvelope envelope = SignEnvelope(kPayloadType, payload, *world_.keys().record_key);
    const std::string leaf =
        WriteLogLeaf({Sha256Of(PreAuthEncoding(kPayloadType, payload)), envelope.signature,
                      world_.keys().record_key->public_key()});
    const AppendedLeaf appended = world_.log()->Append(leaf, "").value();
    SubjectFiles files = files_;
    files.summary.envelope = WriteEnvelope(envelope);
    files.summary.proof_file = appended.proof_file;
    SubjectOpening opening = ParseSubjectOpening(opening_).value();
    opening.leaf_hash = appended.leaf_hash;
    files.summary.opening = WriteSubjectOpening(opening).value();
    return files;
  }
  // Signed and logged by the trusted keys, with its body.
  void LogBody(const std::string& payload) {
    const DsseEnvelope envelope = SignEnvelope(kPayloadType, payload, *world_.keys().record_key);
    const std::string leaf =
        WriteLogLeaf({Sha256Of(PreAuthEncoding(kPayloadType, payload)), envelope.signature,
                      world_.keys().record_key->public_key()});
    ASSERT_OK(world_.log()->Append(leaf, WriteEnvelope(envelope)));
  }
  // Of everything that the log holds.
  RecordSummary Fsck(Findings* findings) {
    LogImage image;
    for (uint64_t i = 0; i < world_.log()->num_leaves(); ++i) {
      image.entries.push_back(world_.log()->Leaf(i).value());
    }
    const BodyReader bodies = [this](uint64_t, const Sha256Digest& leaf_hash) {
      return world_.log()->Body(leaf_hash);
    };
    return CheckRecords(image, kTestOrigin, world_.trust(), bodies, findings);
  }
  std::string Payload() const { return ParseEnvelope(files_.summary.envelope)->payload; }

  CertificateWorld world_;
  Recorder recorder_{world_.keys(), world_.log()};
  const Secret32 salt_ = Secret32::Random();
  std::vector<Sha256Digest> leaf_hashes_;
  std::vector<CertificateFiles> certificates_;
  SubjectSummary summary_;
  std::string opening_;
  SubjectFiles files_;
};

TEST_F(SubjectSummaryTest, EveryCheckHoldsWithEverythingGiven) {
  const SubjectReport report = Verify(files_, certificates_);
  for (const Check& check : report.record.checks) {
    EXPECT_EQ(check.result, CheckResult::kOk) << check.name << ": " << check.detail;
  }
  ASSERT_TRUE(report.record.ok());
  EXPECT_EQ(report.summary->num_inputs, 8u);
  EXPECT_EQ(WriteSubjectSummary(*report.summary).value(), Payload());
  // Neither label nor session stands in what everybody may have.
  for (const char* name : {kLabel, "session-a", "session-c"}) {
    EXPECT_EQ(Payload().find(name), std::string::npos);
    EXPECT_EQ(opening_.find(name), std::string::npos);
  }
}

TEST_F(SubjectSummaryTest, WhatIsNotGivenIsNotChecked) {
  SubjectFiles bare = files_;
  bare.summary.opening.reset();
  const SubjectReport alone = Verify(bare, {});
  EXPECT_TRUE(alone.record.ok());
  for (const char* name : {"opening", "subject label", "records set", "certificates",
                           "certificate set", "certificate inputs"}) {
    EXPECT_EQ(ResultOf(alone, name), CheckResult::kNotChecked) << name;
  }
  // All certificates lead to the signed root without the opening.
  EXPECT_EQ(ResultOf(Verify(bare, certificates_), "certificate set"), CheckResult::kOk);
  // One of two: it is listed, the rest is open.
  const SubjectReport one = Verify(files_, {certificates_[1]});
  EXPECT_TRUE(one.record.ok());
  EXPECT_EQ(ResultOf(one, "certificate set"), CheckResult::kOk);
  EXPECT_EQ(ResultOf(one, "certificate inputs"), CheckResult::kNotChecked);
  EXPECT_EQ(ResultOf(Verify(bare, {certificates_[1]}), "certificate set"),
            CheckResult::kNotChecked);
}

TEST_F(SubjectSummaryTest, OtherCertificatesAreRefused) {
  const std::string request_id = absl::StrCat(kSubjectRequestPrefix, kJob);
  EXPECT_EQ(FailureOf(Verify(files_, {certificates_[0], certificates_[0]})), "certificate job");
  const CertificateFiles other = Forget("session-d", "another request");
  EXPECT_EQ(FailureOf(Verify(files_, {certificates_[0], other})), "certificate job");
  // Of the job by its own word, but not counted, and behind the summary.
  const CertificateFiles late = Forget("session-d", request_id);
  EXPECT_EQ(FailureOf(Verify(files_, {certificates_[0], late})), "certificate order");
  EXPECT_EQ(ResultOf(Verify(files_, {certificates_[0], late}), "certificate set"),
            CheckResult::kFailed);
  EXPECT_EQ(ResultOf(Verify(files_, {late}), "certificate set"), CheckResult::kFailed);
  EXPECT_EQ(FailureOf(Verify(files_, {certificates_[0], certificates_[1], late})),
            "certificate order");
  CertificateFiles broken = certificates_[0];
  broken.proof_file = certificates_[1].proof_file;
  EXPECT_EQ(FailureOf(Verify(files_, {broken})), "certificates");
  // A certificate is no summary, and the other way round.
  SubjectFiles swapped = files_;
  swapped.summary.envelope = certificates_[0].envelope;
  EXPECT_EQ(FailureOf(Verify(swapped, {})), "predicate type");
  EXPECT_EQ(VerifyCertificate(files_.summary, world_.trust()).first_failure()->name,
            "predicate type");
}

TEST_F(SubjectSummaryTest, AnotherLabelOrNonceIsRefused) {
  SubjectFiles other = files_;
  other.label = "patient-18";
  EXPECT_EQ(FailureOf(Verify(other, {})), "subject label");
  EXPECT_EQ(VerifySubject(files_, {}, world_.trust(), {std::string(16, 'x')})
                .record.first_failure()
                ->name,
            "nonce");
}

TEST_F(SubjectSummaryTest, ALogThatHoldsOneIsWhole) {
  Findings findings;
  const RecordSummary records = Fsck(&findings);
  for (const Finding& finding : findings.listed()) {
    ADD_FAILURE() << finding.place << ": " << finding.what;
  }
  EXPECT_EQ(records.num_subject_records, 1u);
  EXPECT_EQ(records.num_bodies, world_.log()->num_leaves());
}

TEST_F(SubjectSummaryTest, OneOfAnotherLogOrWithAnotherFieldIsAFindingOfTheLog) {
  SubjectSummary foreign = summary_;
  foreign.log_origin = "other.example/log";
  LogBody(WriteSubjectSummary(foreign).value());
  std::string misnamed = Payload();
  misnamed.replace(misnamed.find("\"sessions\""), 10, "\"sessionz\"");
  LogBody(misnamed);
  Findings findings;
  EXPECT_EQ(Fsck(&findings).num_subject_records, 2u);
  ASSERT_EQ(findings.num_findings(), 2u);
  EXPECT_EQ(findings.listed()[0].what, "its statement names another log");
  EXPECT_EQ(findings.listed()[1].what.rfind("its statement: predicate", 0), 0u)
      << findings.listed()[1].what;
}

TEST_F(SubjectSummaryTest, EveryMutationUnderTheOldSignatureIsRefused) {
  for (const JsonMutation& mutation : MutateJson(Payload())) {
    DsseEnvelope envelope = ParseEnvelope(files_.summary.envelope).value();
    envelope.payload = mutation.bytes;
    SubjectFiles files = files_;
    files.summary.envelope = WriteEnvelope(envelope);
    EXPECT_EQ(FailureOf(Verify(files, certificates_)), "signature") << mutation.Name();
  }
}

// A lying server signs: what is not its word alone is caught.
TEST_F(SubjectSummaryTest, EveryMutationThatIsBoundIsCaughtWhoeverSignedIt) {
  constexpr const char* kClaims[] = {"predicate.engine.*", "predicate.issuedAt*",
                                     "predicate.requestId*", "predicate.notReached.*",
                                     "predicate.sessions*"};
  int num_claims = 0;
  int num_caught = 0;
  for (const JsonMutation& mutation : MutateJson(Payload())) {
    const std::string failure = FailureOf(Verify(Relog(mutation.bytes), certificates_));
    if (!failure.empty()) {
      ++num_caught;
      continue;
    }
    const bool is_claim =
        mutation.kind == "change" &&
        std::any_of(std::begin(kClaims), std::end(kClaims),
                    [&](const char* pattern) { return MatchesGlob(mutation.path, pattern); });
    EXPECT_TRUE(is_claim) << mutation.Name();
    ++num_claims;
  }
  EXPECT_GT(num_caught, 60);
  EXPECT_GT(num_claims, 5);
}

TEST_F(SubjectSummaryTest, EveryMutationOfTheOpeningIsRefused) {
  int num_mutations = 0;
  for (const JsonMutation& mutation : MutateJson(opening_)) {
    SubjectFiles files = files_;
    files.summary.opening = mutation.bytes;
    EXPECT_NE(FailureOf(Verify(files, certificates_)), "") << mutation.Name();
    ++num_mutations;
  }
  EXPECT_GT(num_mutations, 15);
}

TEST_F(SubjectSummaryTest, CountsThatContradictEachOtherAreNotSigned) {
  const auto refused = [&](const std::function<void(SubjectSummary*)>& change) {
    SubjectSummary wrong = summary_;
    wrong.log_origin = "test.example/log";
    change(&wrong);
    return !WriteSubjectSummary(wrong).ok();
  };
  EXPECT_FALSE(refused([](SubjectSummary*) {}));
  EXPECT_TRUE(refused([](SubjectSummary* s) { s->num_examined = 3; }));
  EXPECT_TRUE(refused([](SubjectSummary* s) { s->num_inputs = 1; }));
  EXPECT_TRUE(refused([](SubjectSummary* s) { s->failed.count = 2; }));
  EXPECT_TRUE(refused([](SubjectSummary* s) { s->reasons.clear(); }));
  EXPECT_TRUE(refused([](SubjectSummary* s) { s->reasons.push_back(s->reasons[0]); }));
  EXPECT_TRUE(refused([](SubjectSummary* s) { s->forgotten.count = 0; }));
  EXPECT_TRUE(refused([](SubjectSummary* s) { s->nonce = "short"; }));
  EXPECT_TRUE(refused([](SubjectSummary* s) { s->job.clear(); }));
}

}  // namespace
}  // namespace lethe::audit
