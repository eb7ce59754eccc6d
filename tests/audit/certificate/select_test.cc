// Goal: a select record follows the certify record that proves the partition it evicts the reserve of,
// and says that what it evicted is gone; bundles of f64 heads read back, and belong to one session's
// parameters.
// Method: a small vector session's solution, recorded in a log of the test's own.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "audit/certificate/bundle.h"
#include "audit/certificate/head_proof.h"
#include "audit/certificate/recorder.h"
#include "audit/certificate/scopes.h"
#include "audit/certificate/verify.h"
#include "kernels/base/byte_io.h"
#include "memory/svdd/canonical.h"
#include "tests/audit/certificate/certificate_world.h"
#include "tests/audit/temp_directory.h"
#include "tests/testing/status_matchers.h"

namespace lethe::audit {
namespace {

using ::lethe::testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr uint64_t kNumKeys = 24;
constexpr uint64_t kKeyDim = 2;
constexpr uint64_t kValueDim = 1;

// Keys on two rings: the inner ones are reserve.
BundleHead MakeVectorHead(uint64_t num_keys = kNumKeys) {
  BundleHead head;
  head.format = NumberFormat::kF64;
  head.sigma = 1.25;
  head.box_mass = 4.5;
  head.ridge = 0x1.0p-11;
  head.key_dim = kKeyDim;
  head.value_dim = kValueDim;
  for (uint64_t i = 0; i < num_keys; ++i) {
    const double x = static_cast<double>((7 * i) % 24) / 12.0 - 1.0;
    const double y = static_cast<double>((5 * i + 3) % 24) / 12.0 - 1.0;
    head.token_ids.push_back(i + 1);
    head.keys.insert(head.keys.end(), {x, y});
    head.values.push_back(0.1 * static_cast<double>(i));
  }
  const svdd::Params params = svdd::MakeParams(head.sigma, head.box_mass, head.ridge, 2).value();
  const svdd::Solution solution = svdd::SolveCanonical(params, head.keys).value();
  head.rho = solution.rho;
  head.a = solution.a;
  for (const svdd::Partition place : solution.classes) {
    head.classes.push_back(place == svdd::Partition::kMargin  ? KeyClass::kMargin
                           : place == svdd::Partition::kError ? KeyClass::kError
                                                              : KeyClass::kReserve);
  }
  return head;
}

Sha256Digest ModelOf(const BundleHead& head) {
  return VectorModelDigest({head.key_dim, head.value_dim, head.sigma, head.box_mass, head.ridge});
}

StateParts PartsOf(const BundleHead& head) {
  StateParts parts;
  parts.Add("model", AsStringView(ModelOf(head)));
  parts.Add("numerics", AsStringView(Sha256Of("numerics")));
  parts.Add("device", "cpu");
  ByteWriter count;
  count.U64(head.token_ids.size());
  parts.Add("tokens", count.bytes());
  parts.Add(SupportPartName(0, 0, 0), SupportStateBytes(HeadSupportState(head)));
  return parts;
}

MemoryDraft MemoryOf(const BundleHead& head) {
  MemoryDraft memory;
  memory.token_ids = head.token_ids;
  memory.classes = head.classes;
  memory.a = head.a;
  memory.smallest_margin = 0.001;
  memory.part_hash = Sha256Of(SupportStateBytes(HeadSupportState(head)));
  return memory;
}

class SelectTest : public ::testing::Test {
 protected:
  SelectTest()
      : keys_(TestKeys()),
        log_(AuditLog::Open({directory_.path() + "/log", kTestOrigin, keys_.log_key}).value()),
        recorder_(keys_, log_.get()),
        head_(MakeVectorHead()),
        parts_(PartsOf(head_)) {
    for (size_t i = 0; i < kNumKeys; ++i) {
      const bool reserve = head_.classes[i] == KeyClass::kReserve;
      (reserve ? reserve_ : support_).push_back(head_.token_ids[i]);
    }
  }

  RecordDraft Draft(RecordKind kind) const {
    RecordDraft draft;
    draft.kind = kind;
    draft.session_id = "session-1";
    draft.nonce = kTestNonce;
    draft.request_id = "request-1";
    draft.issued_at = "2026-11-30T12:34:56Z";
    draft.engine = {
        Sha256Of("binary"), "lethe test build",  Sha256Of("config"), "lethe-canonical-v2", "cpu",
        ModelOf(head_),     Sha256Of("numerics")};
    return draft;
  }

  RecordDraft CertifyDraft(bool proved) const {
    RecordDraft draft = Draft(RecordKind::kCertify);
    draft.digest_after = parts_.Digest();
    draft.retained = head_.token_ids;
    draft.proves_optimality = true;
    MemoryDraft memory = MemoryOf(head_);
    const svdd::OptimalityBounds bounds = ProveHead(head_).value();
    memory.deviation = ToDeviation(bounds);
    memory.smallest_margin = bounds.smallest_margin;
    memory.partition_proved = proved;
    draft.memories = {memory};
    return draft;
  }

  RecordDraft SelectDraft(const std::vector<uint64_t>& evicted) const {
    RecordDraft draft = Draft(RecordKind::kSelect);
    draft.digest_before = parts_.Digest();
    draft.digest_after = Sha256Of("state after");
    draft.forgotten = evicted;
    for (const uint64_t id : head_.token_ids) {
      if (!std::binary_search(evicted.begin(), evicted.end(), id)) draft.retained.push_back(id);
    }
    draft.inputs_evicted = true;
    draft.layers = {{0, "memory", LayerMethod::kDecremental}};
    MemoryDraft memory;
    for (size_t i = 0; i < kNumKeys; ++i) {
      if (std::binary_search(evicted.begin(), evicted.end(), head_.token_ids[i])) continue;
      memory.token_ids.push_back(head_.token_ids[i]);
      memory.classes.push_back(head_.classes[i]);
      memory.a.push_back(head_.a[i]);
    }
    draft.memories = {memory};
    draft.stores = {{"session-memory", "replaced"}};
    return draft;
  }

  CertificateFiles Record(const RecordDraft& draft) {
    const FinishedRecord record = recorder_.Record(draft, &session_).value();
    return {record.envelope, record.proof_file, std::nullopt, record.opening, std::nullopt};
  }

  // "" when the records verify as a sequence, else the first check that failed.
  std::string FirstFailure(const CertificateFiles& certify, const CertificateFiles& select) {
    return FirstFailure({certify, select});
  }
  std::string FirstFailure(const std::vector<CertificateFiles>& records) {
    const SequenceReport report = VerifySequence(records, keys_.Trust(kTestOrigin).value());
    for (const Check& check : report.checks) {
      if (check.result != CheckResult::kOk) return check.name;
    }
    return "";
  }

  const TempDirectory directory_{TempDirectory::Where::kMemory};
  const ServerKeys keys_;
  std::unique_ptr<AuditLog> log_;
  Recorder recorder_;
  SessionRecords session_;
  const BundleHead head_;
  const StateParts parts_;
  std::vector<uint64_t> reserve_;
  std::vector<uint64_t> support_;
};

TEST_F(SelectTest, ASelectionFollowsTheRecordThatProvesItsPartition) {
  ASSERT_GE(reserve_.size(), 4u);
  const CertificateFiles certify = Record(CertifyDraft(true));
  const CertificateFiles select = Record(SelectDraft(reserve_));
  EXPECT_EQ(FirstFailure(certify, select), "");
  const VerifyReport report = VerifyCertificate(select, keys_.Trust(kTestOrigin).value());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report.statement->kind, RecordKind::kSelect);
  EXPECT_EQ(report.statement->forgot.count, reserve_.size());
  EXPECT_EQ(report.Find("forgotten set")->result, CheckResult::kOk);
  const std::vector<std::string>& scopes = report.statement->residual_scopes;
  EXPECT_EQ(std::count(scopes.begin(), scopes.end(), kScopeEvicted), 1);
}

TEST_F(SelectTest, ASelectionWithoutAProvedPartitionIsRefused) {
  const CertificateFiles certify = Record(CertifyDraft(false));
  EXPECT_EQ(FirstFailure(certify, Record(SelectDraft(reserve_))), "sequence selections");
}

TEST_F(SelectTest, EvictingOtherThanTheReserveIsRefused) {
  const CertificateFiles certify = Record(CertifyDraft(true));
  std::vector<uint64_t> evicted = reserve_;
  evicted.pop_back();
  EXPECT_EQ(FirstFailure(certify, Record(SelectDraft(evicted))), "sequence selections");
}

TEST_F(SelectTest, EvictingAsManySupportKeysIsRefused) {
  const CertificateFiles certify = Record(CertifyDraft(true));
  std::vector<uint64_t> evicted = reserve_;
  evicted.pop_back();
  evicted.push_back(support_[0]);
  std::sort(evicted.begin(), evicted.end());
  EXPECT_EQ(FirstFailure(certify, Record(SelectDraft(evicted))), "sequence selections");
}

TEST_F(SelectTest, ASelectionFromAnotherStateThanTheCertifiedOneIsRefused) {
  const CertificateFiles certify = Record(CertifyDraft(true));
  RecordDraft draft = SelectDraft(reserve_);
  draft.digest_before = Sha256Of("another state");
  EXPECT_EQ(FirstFailure(certify, Record(draft)), "sequence selections");
}

TEST_F(SelectTest, LaterRecordsGoOnSayingThatInputsWereEvicted) {
  const CertificateFiles certify = Record(CertifyDraft(true));
  const CertificateFiles select = Record(SelectDraft(reserve_));
  for (const bool says_so : {true, false}) {
    RecordDraft next = SelectDraft(reserve_);
    next.kind = RecordKind::kCertify;
    next.digest_before = {};
    next.forgotten.clear();
    next.stores.clear();
    next.layers.clear();
    next.inputs_evicted = says_so;
    SessionRecords session = session_;
    const FinishedRecord record = recorder_.Record(next, &session).value();
    const CertificateFiles files = {record.envelope, record.proof_file, std::nullopt,
                                    record.opening, std::nullopt};
    // The selection has nobody to vouch for it here.
    EXPECT_EQ(FirstFailure(certify, files), "sequence numbers");
    EXPECT_EQ(FirstFailure({certify, select, files}), says_so ? "" : "sequence scopes");
    EXPECT_EQ(FirstFailure(select, files), "sequence selections");
  }
}

TEST_F(SelectTest, AHeadLeftOutOfTheProofIsRefused) {
  // Solved on all but the last four inputs, which the record says are retained.
  BundleHead head = MakeVectorHead(kNumKeys - 4);
  RecordDraft draft = CertifyDraft(false);
  StateParts parts = PartsOf(head);
  ByteWriter count;
  count.U64(kNumKeys);
  StateParts lying;
  for (const StatePart& part : parts.parts()) {
    if (part.name == "tokens") {
      lying.Add("tokens", count.bytes());
    } else {
      lying.AddHash(part.name, part.hash);
    }
  }
  draft.digest_after = lying.Digest();
  MemoryDraft memory = MemoryOf(head);
  const svdd::OptimalityBounds bounds = ProveHead(head).value();
  memory.deviation = ToDeviation(bounds);
  memory.smallest_margin = bounds.smallest_margin;
  draft.memories = {memory};
  CertificateFiles files = Record(draft);
  const Sha256Digest leaf = ParseOpening(*files.opening).value().leaf_hash;
  ASSERT_OK_AND_ASSIGN(files.bundle, WriteBundle({leaf, lying.parts(), {head}}));
  const VerifyReport report = VerifyCertificate(files, keys_.Trust(kTestOrigin).value());
  ASSERT_NE(report.first_failure(), nullptr);
  EXPECT_EQ(report.first_failure()->name, "partition rows");
}

TEST_F(SelectTest, AVectorSessionsNumbersDoNotPassForF32) {
  BundleHead head = head_;
  head.format = NumberFormat::kF32;
  RecordDraft draft = CertifyDraft(false);
  draft.digest_after = PartsOf(head).Digest();
  draft.memories[0].part_hash = Sha256Of(SupportStateBytes(HeadSupportState(head)));
  CertificateFiles files = Record(draft);
  const Sha256Digest leaf = ParseOpening(*files.opening).value().leaf_hash;
  ASSERT_OK_AND_ASSIGN(files.bundle, WriteBundle({leaf, PartsOf(head).parts(), {head}}));
  const VerifyReport report = VerifyCertificate(files, keys_.Trust(kTestOrigin).value());
  ASSERT_NE(report.first_failure(), nullptr);
  EXPECT_EQ(report.first_failure()->name, "engine identity");
}

TEST_F(SelectTest, ASelectionDestroysEarlierOpenings) {
  Record(CertifyDraft(true));
  Record(SelectDraft(reserve_));
  EXPECT_EQ(session_.num_openings(), 1u);
}

TEST_F(SelectTest, BrokenRulesAreRefusedByName) {
  EXPECT_THAT(recorder_.Record(SelectDraft(reserve_), &session_).status(),
              StatusIs(kInvalid, "predicate.seq"));
  Record(CertifyDraft(true));
  EXPECT_THAT(recorder_.Record(SelectDraft({}), &session_).status(),
              StatusIs(kInvalid, "predicate.evicted"));
  RecordDraft proves = SelectDraft(reserve_);
  proves.proves_optimality = true;
  proves.memories.clear();
  EXPECT_THAT(recorder_.Record(proves, &session_).status(), StatusIs(kInvalid, "predicate.proofs"));
  RecordDraft derived = SelectDraft(reserve_);
  derived.derived_kept = {support_[0]};
  EXPECT_FALSE(recorder_.Record(derived, &session_).ok());
}

TEST_F(SelectTest, AnF64BundleReadsBackAndVerifies) {
  ProofBundle bundle{{}, parts_.parts(), {head_}};
  ASSERT_OK_AND_ASSIGN(const std::string bytes, WriteBundle(bundle));
  ASSERT_OK_AND_ASSIGN(const ProofBundle parsed, ParseBundle(bytes));
  EXPECT_EQ(parsed.heads[0].format, NumberFormat::kF64);
  EXPECT_EQ(parsed.heads[0].keys, head_.keys);
  EXPECT_EQ(parsed.heads[0].values, head_.values);

  CertificateFiles files = Record(CertifyDraft(false));
  bundle.leaf_hash = ParseOpening(*files.opening).value().leaf_hash;
  ASSERT_OK_AND_ASSIGN(files.bundle, WriteBundle(bundle));
  const VerifyReport report = VerifyCertificate(files, keys_.Trust(kTestOrigin).value());
  EXPECT_TRUE(report.ok()) << report.first_failure()->name << ": "
                           << report.first_failure()->detail;
}

TEST_F(SelectTest, AnF64BundleOfOtherParametersThanTheStatementsIsRefused) {
  RecordDraft draft = CertifyDraft(false);
  draft.engine.model_digest = Sha256Of("another model");
  StateParts parts;
  parts.Add("model", AsStringView(Sha256Of("another model")));
  for (size_t i = 1; i < parts_.parts().size(); ++i) {
    parts.AddHash(parts_.parts()[i].name, parts_.parts()[i].hash);
  }
  draft.digest_after = parts.Digest();
  CertificateFiles files = Record(draft);
  const Sha256Digest leaf = ParseOpening(*files.opening).value().leaf_hash;
  ASSERT_OK_AND_ASSIGN(files.bundle, WriteBundle({leaf, parts.parts(), {head_}}));
  const VerifyReport report = VerifyCertificate(files, keys_.Trust(kTestOrigin).value());
  ASSERT_NE(report.first_failure(), nullptr);
  EXPECT_EQ(report.first_failure()->name, "engine identity");
}

TEST_F(SelectTest, AHeadWithoutValuesReadsBack) {
  BundleHead head = head_;
  head.value_dim = 0;
  head.values.clear();
  ASSERT_OK_AND_ASSIGN(const std::string bytes, WriteBundle({{}, PartsOf(head).parts(), {head}}));
  ASSERT_OK_AND_ASSIGN(const ProofBundle parsed, ParseBundle(bytes));
  EXPECT_TRUE(parsed.heads[0].values.empty());
  EXPECT_EQ(HeadSupportState(parsed.heads[0]).inputs_root, HeadSupportState(head).inputs_root);
}

}  // namespace
}  // namespace lethe::audit
