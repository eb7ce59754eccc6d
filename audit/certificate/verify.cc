#include "audit/certificate/verify.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/certificate/commitment.h"
#include "audit/certificate/dsse.h"
#include "audit/certificate/id_ranges.h"
#include "audit/certificate/json.h"
#include "audit/certificate/opening.h"
#include "audit/certificate/report_builder.h"
#include "audit/certificate/verify_bundle.h"
#include "audit/certificate/verify_record.h"
#include "audit/crypto/encoding.h"
#include "audit/crypto/secret.h"
#include "audit/log/checkpoint.h"
#include "audit/log/leaf.h"
#include "audit/log/merkle_tree.h"
#include "audit/log/merkle_verify.h"
#include "audit/log/tlog_proof.h"

namespace lethe::audit {
namespace {

constexpr char kNoTrustedKey[] = "no trusted key";

}  // namespace

bool VerifyEnvelope(const CertificateFiles& files, const TrustStore& trust, SignedRecord* record,
                    ReportBuilder* report) {
  if (trust.record_keys.empty() || trust.log_keys.empty()) {
    return report->Fail("trust", kNoTrustedKey);
  }
  report->Ok("trust");
  absl::StatusOr<DsseEnvelope> envelope = ParseEnvelope(files.envelope);
  if (!report->Set("envelope", envelope.status())) return false;
  record->envelope = *std::move(envelope);
  if (record->envelope.payload_type != kPayloadType) {
    return report->Fail("payload type", absl::StrCat("want ", kPayloadType));
  }
  report->Ok("payload type");
  for (const TrustedRecordKey& candidate : trust.record_keys) {
    if (HexEncode(candidate.key.KeyId()) == record->envelope.key_id) record->key = &candidate;
  }
  if (record->key == nullptr) return report->Fail("record key", kNoTrustedKey);
  report->Ok("record key");
  const std::string pae = PreAuthEncoding(record->envelope.payload_type, record->envelope.payload);
  if (!record->key->key.Verify(pae, AsStringView(record->envelope.signature))) {
    return report->Fail("signature", "the signature is not the trusted key's over this payload");
  }
  return report->Ok("signature");
}

namespace {

bool VerifyStatement(const std::string& payload, ReportBuilder* report, VerifyReport* result) {
  if (!report->Set("statement", ParseJson(payload, JsonSyntax::kCanonical).status())) return false;
  if (!report->Set("predicate type", PeekRecordKind(payload).status())) return false;
  absl::StatusOr<Statement> statement = ParseStatement(payload);
  if (!report->Set("predicate", statement.status())) return false;
  result->statement = *std::move(statement);
  return true;
}

}  // namespace

// The leaf is never taken from the certificate: it is rebuilt from the envelope and the trusted
// key.
bool VerifyLeaf(const CertificateFiles& files, const SignedRecord& record, ReportBuilder* report,
                VerifyReport* result) {
  const std::string pae = PreAuthEncoding(record.envelope.payload_type, record.envelope.payload);
  const std::string leaf =
      WriteLogLeaf(LogLeaf{Sha256Of(pae), record.envelope.signature, record.key->key});
  result->leaf_hash = MerkleLeafHash(leaf);
  if (files.leaf.has_value() && *files.leaf != leaf) {
    return report->Fail("leaf binding", "the leaf is not that of this envelope");
  }
  return report->Ok("leaf binding", HexEncode(result->leaf_hash));
}

namespace {

absl::StatusOr<TlogProof> OpenProofFile(const std::string& proof_file) {
  absl::StatusOr<TlogProof> proof = ParseTlogProof(proof_file);
  if (proof.ok() && proof->extra.has_value()) {
    return absl::InvalidArgumentError("proof: has an extra line, which nothing authenticates");
  }
  return proof;
}

// Verifies the checkpoint by the trusted key of its origin, and the cosignatures that the trust file asks for.
absl::StatusOr<Checkpoint> OpenTrusted(const std::string& note, const TrustStore& trust) {
  const absl::StatusOr<SignedNote> parsed = ParseNote(note);
  if (!parsed.ok()) return parsed.status();
  for (const VerifierKey& vkey : trust.log_keys) {
    const bool by_key =
        std::any_of(parsed->signatures.begin(), parsed->signatures.end(),
                    [&vkey](const NoteSignature& signature) {
                      return signature.name == vkey.name && signature.key_id == vkey.key_id;
                    });
    if (!by_key) continue;
    for (const WitnessKey& witness : trust.witnesses) {
      const absl::Status cosigned = VerifyCosignature(*parsed, witness);
      if (!cosigned.ok()) return cosigned;
    }
    return OpenCheckpoint(note, vkey);
  }
  return absl::NotFoundError(kNoTrustedKey);
}

}  // namespace

void VerifyInclusionInLog(const std::string& proof_file, const std::string& log_origin,
                          const TrustStore& trust, const SignedRecord& record,
                          ReportBuilder* report, VerifyReport* result) {
  const absl::StatusOr<TlogProof> proof = OpenProofFile(proof_file);
  if (!report->Set("proof file", proof.status())) return;
  const absl::StatusOr<Checkpoint> checkpoint = OpenTrusted(proof->checkpoint, trust);
  if (!report->Set("checkpoint", checkpoint.status())) return;
  if (checkpoint->origin == log_origin) {
    report->Ok("log origin");
  } else {
    report->Fail("log origin", "the statement names another log");
  }
  const absl::Status inclusion = VerifyInclusion(
      {proof->leaf_index, checkpoint->tree_size, result->leaf_hash, checkpoint->root_hash},
      proof->hashes);
  if (!report->Set("inclusion", inclusion)) return;
  result->leaf_index = proof->leaf_index;
  // A key may have several entries, one a log.
  if (IsValidAt(trust, record.key->key, checkpoint->origin, proof->leaf_index)) {
    report->Ok("key range");
  } else {
    report->Fail("key range", "the record key is not valid at this leaf index");
  }
  result->core_ok = report->IsOk("inclusion") && report->IsOk("key range");
}

void VerifyNonce(const std::string& nonce, const VerifyOptions& options, ReportBuilder* report) {
  if (!options.expected_nonce.has_value()) {
    report->Skip("nonce", "no nonce given to compare with");
  } else if (ConstantTimeEqual(AsByteSpan(*options.expected_nonce), AsByteSpan(nonce))) {
    report->Ok("nonce");
  } else {
    report->Fail("nonce", "the record answers another request");
  }
}

namespace {

void VerifyFields(const Statement& statement, const VerifyOptions& options, ReportBuilder* report) {
  VerifyNonce(statement.nonce, options, report);
  report->Set("sequence", CheckSequenceFields(statement));
  report->Set("scope", CheckScopeFields(statement));
}

void CheckOpenedSet(const char* name, const CommittedSet& stated, const Secret32& salt,
                    const std::vector<uint64_t>& token_ids, bool fits, ReportBuilder* report) {
  const CommittedSet opened = CommitSet(salt, token_ids);
  if (opened.count != stated.count || opened.root != stated.root) {
    report->Fail(name, "the opening's ids are not those of the statement");
  } else if (!fits) {
    report->Fail(name, "forgotten ids are retained, or derived ones are not");
  } else {
    report->Ok(name, absl::StrCat(opened.count, " ids"));
  }
}

// Absent when there is no opening or it is not this record's.
std::optional<Opening> VerifyOpening(const std::string& bytes, const VerifyReport& result,
                                     ReportBuilder* report) {
  absl::StatusOr<Opening> opening = ParseOpening(bytes);
  if (opening.ok() && opening->leaf_hash != result.leaf_hash) {
    opening = absl::InvalidArgumentError("opening belongs to another record");
  }
  const Statement& statement = *result.statement;
  if (opening.ok() && !RemovesInputs(statement.kind) &&
      (!opening->forgotten.empty() || !opening->derived_kept.empty())) {
    opening = absl::InvalidArgumentError(absl::StrCat("opening names forgotten tokens of a ",
                                                      RecordKindName(statement.kind), " record"));
  }
  if (!report->Set("opening", opening.status())) return std::nullopt;
  const Sha256Digest subject = CommitState(opening->salt, opening->state_digest);
  const bool matches = ConstantTimeEqual(subject, statement.subject_digest);
  if (matches) {
    report->Ok("subject digest");
  } else {
    report->Fail("subject digest", "the opening's salt and digest are not those of the statement");
  }
  CheckOpenedSet("retained set", statement.retained, opening->salt, opening->retained, true,
                 report);
  if (RemovesInputs(statement.kind)) {
    CheckOpenedSet("forgotten set", statement.forgot, opening->salt, opening->forgotten,
                   AreDisjoint(opening->forgotten, opening->retained), report);
    CheckOpenedSet("derived set", statement.derived_kept, opening->salt, opening->derived_kept,
                   IsSubset(opening->derived_kept, opening->retained), report);
  } else {
    const std::string why =
        absl::StrCat("a ", RecordKindName(statement.kind), " record removes nothing");
    report->Skip("forgotten set", why);
    report->Skip("derived set", why);
  }
  if (!matches) return std::nullopt;
  return *std::move(opening);
}

constexpr const char* kOpeningChecks[] = {"opening", "subject digest", "retained set",
                                          "forgotten set", "derived set"};
constexpr const char* kBundleChecks[] = {"bundle",         "bundle path", "engine identity",
                                         "retained count", "evidence",    "partition counts",
                                         "partition rows", "optimality"};

void VerifyOpened(const CertificateFiles& files, const VerifyReport& result,
                  ReportBuilder* report) {
  if (!files.opening.has_value()) {
    for (const char* name : kOpeningChecks) report->Skip(name, "no opening given");
  }
  if (!files.bundle.has_value()) {
    for (const char* name : kBundleChecks) report->Skip(name, "no bundle given");
  }
  if (!files.opening.has_value()) {
    // Not merely skipped: who hands a bundle over expects it to be checked.
    if (files.bundle.has_value()) report->Fail("bundle", "cannot be checked without the opening");
    return;
  }
  const std::optional<Opening> opening = VerifyOpening(*files.opening, result, report);
  if (opening.has_value() && files.bundle.has_value()) {
    VerifyBundle(*files.bundle, {&*result.statement, &*opening, result.leaf_hash}, report);
  }
}

}  // namespace

bool VerifyReport::ok() const { return !checks.empty() && core_ok && first_failure() == nullptr; }

const Check* VerifyReport::first_failure() const {
  for (const Check& check : checks) {
    if (check.result == CheckResult::kFailed) return &check;
  }
  return nullptr;
}

const Check* VerifyReport::Find(absl::string_view name) const {
  for (const Check& check : checks) {
    if (name == check.name) return &check;
  }
  return nullptr;
}

VerifyReport VerifyCertificate(const CertificateFiles& files, const TrustStore& trust,
                               const VerifyOptions& options) {
  VerifyReport result;
  ReportBuilder report(kCheckNames, &result.checks);
  SignedRecord record;
  if (VerifyEnvelope(files, trust, &record, &report) &&
      VerifyStatement(record.envelope.payload, &report, &result) &&
      VerifyLeaf(files, record, &report, &result)) {
    VerifyInclusionInLog(files.proof_file, result.statement->log_origin, trust, record, &report,
                         &result);
    VerifyFields(*result.statement, options, &report);
    if (result.core_ok) VerifyOpened(files, result, &report);
  }
  report.Skip("state replay", "needs the model and the retained history: lethe replay");
  report.Finish();
  return result;
}

}  // namespace lethe::audit
