#include "audit/certificate/recorder.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/certificate/dsse.h"
#include "audit/certificate/id_ranges.h"
#include "audit/certificate/scopes.h"
#include "audit/log/leaf.h"
#include "audit/log/merkle_tree.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

absl::Status InvalidDraft(absl::string_view field, absl::string_view want) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": want ", want));
}

absl::Status CheckDraft(const RecordDraft& draft) {
  if (draft.session_id.empty()) return InvalidDraft("session_id", "a name that is not empty");
  if (!IsStrictlyAscending(draft.retained)) return InvalidDraft("retained", "ascending ids");
  if (!IsStrictlyAscending(draft.forgotten)) return InvalidDraft("forgotten", "ascending ids");
  if (!IsStrictlyAscending(draft.derived_kept))
    return InvalidDraft("derived_kept", "ascending ids");
  if (!AreDisjoint(draft.forgotten, draft.retained)) {
    return InvalidDraft("forgotten", "no id that is retained");
  }
  if (!IsSubset(draft.derived_kept, draft.retained)) {
    return InvalidDraft("derived_kept", "retained ids");
  }
  if (!RemovesInputs(draft.kind) && !draft.forgotten.empty()) {
    return InvalidDraft("forgotten", "no ids in a record that removes nothing");
  }
  for (const MemoryDraft& memory : draft.memories) {
    const size_t n = memory.token_ids.size();
    if (memory.classes.size() != n || memory.a.size() != n || n > draft.retained.size()) {
      return InvalidDraft("memories", "one class and one a per gated key, keys among the retained");
    }
    for (size_t i = 0; i < n; ++i) {
      if (memory.token_ids[i] != draft.retained[i]) {
        return InvalidDraft("memories", "the first retained ids in rank order as gated keys");
      }
    }
  }
  return absl::OkStatus();
}

uint64_t CountClass(const MemoryDraft& memory, KeyClass key_class) {
  uint64_t count = 0;
  for (const KeyClass c : memory.classes) count += c == key_class ? 1 : 0;
  return count;
}

MemoryReport MakeMemoryReport(const MemoryDraft& draft, const Secret32& salt) {
  MemoryReport report;
  report.layer = draft.layer;
  report.group = draft.group;
  report.head = draft.head;
  report.num_margin = CountClass(draft, KeyClass::kMargin);
  report.num_error = CountClass(draft, KeyClass::kError);
  report.num_reserve = CountClass(draft, KeyClass::kReserve);
  report.rows_root = CommitPartition(salt, {draft.token_ids, draft.classes, draft.a});
  report.smallest_margin = draft.smallest_margin;
  report.partition_proved = draft.partition_proved;
  report.deviation = draft.deviation;
  if (report.deviation.has_value()) {
    report.deviation->evidence = CommitEvidence(salt, draft.part_hash, draft.witness_hash);
  }
  return report;
}

}  // namespace

const Opening* SessionRecords::FindOpening(const Sha256Digest& leaf_hash) const {
  for (const Opening& opening : openings_) {
    if (opening.leaf_hash == leaf_hash) return &opening;
  }
  return nullptr;
}

void SessionRecords::DestroyOpenings() {
  for (Opening& opening : openings_) {
    SecureWipe(opening.state_digest.data(), opening.state_digest.size());
  }
  openings_.clear();  // each salt wipes itself
}

SessionRecords SessionRecords::Restore(uint64_t num_records, const Sha256Digest& newest,
                                       std::vector<Opening> openings) {
  SessionRecords records;
  records.next_seq_ = num_records + 1;
  records.prev_ = newest;
  if (!openings.empty()) records.last_salt_ = openings.back().salt;
  records.openings_ = std::move(openings);
  return records;
}

Recorder::Recorder(ServerKeys keys, AuditLog* log) : keys_(std::move(keys)), log_(log) {}

Sha256Digest Recorder::SessionPseudonym(absl::string_view session_id) const {
  return HmacSha256(keys_.pseudonym_key.bytes(), session_id);
}

absl::StatusOr<Statement> Recorder::MakeStatement(const RecordDraft& draft,
                                                  const SessionRecords& records,
                                                  const Secret32& salt) const {
  LETHE_RETURN_IF_ERROR(CheckDraft(draft));
  Statement statement;
  statement.kind = draft.kind;
  statement.subject_digest = CommitState(salt, draft.digest_after);
  statement.log_origin = log_->verifier_key().name;
  statement.session_pseudonym = SessionPseudonym(draft.session_id);
  statement.seq = records.next_seq_;
  statement.prev = records.prev_;
  statement.nonce = draft.nonce;
  statement.request_id = draft.request_id;
  statement.issued_at = draft.issued_at;
  statement.engine = draft.engine;
  statement.retained = CommitSet(salt, draft.retained);
  statement.layers = draft.layers;
  for (const MemoryDraft& memory : draft.memories) {
    statement.memories.push_back(MakeMemoryReport(memory, salt));
  }
  statement.proves_optimality = draft.proves_optimality;
  statement.stores = draft.stores;
  statement.migrated_from = draft.migrated_from;
  statement.auditor = draft.auditor;
  statement.derived_kept = CommitSet(salt, draft.derived_kept);
  statement.forgot = CommitSet(salt, draft.forgotten);
  if (draft.kind == RecordKind::kForget) statement.derived_policy = draft.derived_policy;
  if (RemovesInputs(draft.kind)) {
    // Under the previous record's salt, which this change destroys: this record's own opening must
    // not let its holder test guesses about what was forgotten.
    const Secret32 before_salt =
        records.last_salt_.has_value() ? *records.last_salt_ : Secret32::Random();
    statement.before_digest = CommitState(before_salt, draft.digest_before);
  }
  statement.residual_scopes = ResidualScopes({draft.retains_derived || !draft.derived_kept.empty(),
                                              draft.inputs_evicted, draft.memory_wiped});
  return statement;
}

Recorder::SignedLeaf Recorder::Sign(const std::string& payload) const {
  const DsseEnvelope envelope = SignEnvelope(kPayloadType, payload, *keys_.record_key);
  const Sha256Digest pae_digest = Sha256Of(PreAuthEncoding(kPayloadType, payload));
  SignedLeaf signed_leaf;
  signed_leaf.envelope = WriteEnvelope(envelope);
  signed_leaf.leaf =
      WriteLogLeaf(LogLeaf{pae_digest, envelope.signature, keys_.record_key->public_key()});
  signed_leaf.leaf_hash = MerkleLeafHash(signed_leaf.leaf);
  return signed_leaf;
}

absl::StatusOr<FinishedSummary> Recorder::RecordSummary(
    SubjectSummary summary, const std::function<absl::Status(const Sha256Digest&)>& before_append) {
  summary.log_origin = log_->verifier_key().name;
  LETHE_ASSIGN_OR_RETURN(const std::string payload, WriteSubjectSummary(summary));
  // Read back before signing, as every record.
  LETHE_RETURN_IF_ERROR(ParseSubjectSummary(payload).status());
  const SignedLeaf signed_leaf = Sign(payload);
  if (before_append) LETHE_RETURN_IF_ERROR(before_append(signed_leaf.leaf_hash));
  LETHE_ASSIGN_OR_RETURN(AppendedLeaf appended,
                         log_->Append(signed_leaf.leaf, signed_leaf.envelope));
  return FinishedSummary{appended.leaf_index, signed_leaf.leaf_hash, signed_leaf.envelope,
                         std::move(appended.proof_file)};
}

absl::StatusOr<FinishedRecord> Recorder::Record(
    const RecordDraft& draft, SessionRecords* records,
    const std::function<absl::Status(const PreparedRecord&)>& before_append) {
  const Secret32 salt = Secret32::Random();
  FinishedRecord record;
  LETHE_ASSIGN_OR_RETURN(record.statement, MakeStatement(draft, *records, salt));
  LETHE_ASSIGN_OR_RETURN(const std::string payload, WriteStatement(record.statement));
  // Read back before signing: what a verifier would refuse is never signed.
  LETHE_RETURN_IF_ERROR(ParseStatement(payload).status());
  SignedLeaf signed_leaf = Sign(payload);
  record.envelope = std::move(signed_leaf.envelope);
  record.seq = record.statement.seq;
  record.leaf_hash = signed_leaf.leaf_hash;
  Opening opening{salt,           draft.digest_after, record.leaf_hash,
                  draft.retained, draft.forgotten,    draft.derived_kept};
  record.opening = WriteOpening(opening);
  if (before_append) {
    LETHE_RETURN_IF_ERROR(before_append({record.seq, record.leaf_hash, record.opening}));
  }
  LETHE_ASSIGN_OR_RETURN(AppendedLeaf appended, log_->Append(signed_leaf.leaf, record.envelope));
  record.leaf_index = appended.leaf_index;
  record.proof_file = std::move(appended.proof_file);
  if (RemovesInputs(draft.kind)) records->DestroyOpenings();
  records->openings_.push_back(std::move(opening));
  records->last_salt_ = salt;
  records->prev_ = record.leaf_hash;
  ++records->next_seq_;
  return record;
}

}  // namespace lethe::audit
