#include "server/certification/certifier.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"

#include "audit/certificate/head_proof.h"
#include "kernels/base/status_macros.h"
#include "server/certification/receipt_codec.h"
#include "server/certification/removal.h"
#include "server/certification/session_methods.h"
#include "server/certification/sv_heads.h"
#include "server/error/error_info.h"
#include "server/session_registry/durable_entry.h"
#include "server/session_registry/saved_session.h"

namespace lethe {
namespace {

class CertifyAnswer : public StoredAnswer {
 public:
  explicit CertifyAnswer(CertifiedHeads value) : certified(std::move(value)) {}
  void DropOpenings() override { certified.digest.reset(); }
  std::string Encode(bool keep_openings) const override {
    return EncodeCertifiedHeads(certified, keep_openings);
  }
  CertifiedHeads certified;
};

absl::Status EpochPassed(absl::string_view field) {
  return WithErrorInfo(absl::FailedPreconditionError(absl::StrCat(
                           field,
                           ": the certified state is not the present one any more; bundles are "
                           "computed from the present state and never stored")),
                       {"EPOCH_PASSED", {{"field", std::string(field)}}});
}

absl::StatusOr<CertificateText> FetchText(const RecordRef& ref, const AuditTrail& trail,
                                          const SessionEntry& entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex) {
  CertificateText text;
  text.ref = ref;
  absl::StatusOr<std::string> envelope = trail.log->Body(ref.leaf_hash);
  if (!envelope.ok()) return WithDefaultReason(envelope.status(), "AUDIT_LOG");
  text.envelope = *std::move(envelope);
  absl::StatusOr<std::string> proof = trail.log->ProofFile(ref.leaf_hash);
  if (!proof.ok()) return WithDefaultReason(proof.status(), "AUDIT_LOG");
  text.log_proof = *std::move(proof);
  const audit::Opening* opening = entry.records.FindOpening(ref.leaf_hash);
  if (opening != nullptr) text.opening = audit::WriteOpening(*opening);
  return text;
}

// One per support-vector head.
using Witnesses = std::vector<std::optional<svdd::Witness>>;

Witnesses WitnessesOf(const AnySession& session) {
  Witnesses witnesses;
  for (const SvHead& head : session.SvHeads()) witnesses.push_back(WitnessOfHead(head));
  return witnesses;
}

absl::StatusOr<std::string> MakeBundle(const audit::Sha256Digest& leaf_hash,
                                       const AnySession& session, Witnesses witnesses) {
  audit::ProofBundle bundle;
  bundle.leaf_hash = leaf_hash;
  bundle.parts = session.StateParts().parts();
  const std::vector<uint64_t> ids = RetainedIds(session.inputs());
  for (const SvHead& head : session.SvHeads()) {
    std::optional<svdd::Witness>& witness = witnesses[bundle.heads.size()];
    bundle.heads.push_back(BundleOfHead(head, ids, std::move(witness)));
  }
  return audit::WriteBundle(bundle);
}

HeadReport ReportHead(const SvHead& head, const audit::MemoryDraft& draft) {
  HeadReport report;
  report.head = head.name;
  report.num_keys = static_cast<int64_t>(draft.classes.size());
  for (const audit::KeyClass key_class : draft.classes) {
    if (key_class == audit::KeyClass::kMargin) ++report.num_margin;
    if (key_class == audit::KeyClass::kError) ++report.num_error;
    if (key_class == audit::KeyClass::kReserve) ++report.num_reserve;
  }
  return report;
}

audit::Sha256Digest PartHash(const std::vector<audit::StatePart>& parts, const SvHead& head) {
  const std::string name = audit::SupportPartName(head.layer, head.group, head.head);
  for (const audit::StatePart& part : parts) {
    if (part.name == name) return part.hash;
  }
  return {};
}

// Proves every head and fills in the draft's memories and the receipt's heads; returns the witnesses.
absl::StatusOr<Witnesses> ProveHeads(const AnySession& session, const Checkpoint& checkpoint,
                                     audit::RecordDraft* draft, CertifyReceipt* receipt) {
  Witnesses witnesses;
  for (const SvHead& head : session.SvHeads()) {
    LETHE_RETURN_IF_ERROR(checkpoint());
    audit::MemoryDraft memory = DraftHead(head, draft->retained);
    HeadReport report = ReportHead(head, memory);
    witnesses.push_back(WitnessOfHead(head));
    LETHE_ASSIGN_OR_RETURN(const std::optional<svdd::OptimalityBounds> bounds,
                           ProveHead(head, witnesses.back()));
    if (bounds.has_value()) {
      memory.deviation = audit::ToDeviation(*bounds);
      memory.part_hash = PartHash(receipt->parts, head);
      memory.witness_hash = audit::WitnessHash(witnesses.back());
      memory.smallest_margin = bounds->smallest_margin;
      memory.partition_proved = bounds->partition_proved;
      report.partition_proved = bounds->partition_proved;
      if (!InWarmUp(head)) report.bounds = bounds;
    }
    draft->memories.push_back(std::move(memory));
    receipt->heads.push_back(std::move(report));
  }
  return witnesses;
}

absl::StatusOr<CertifyReceipt> RepeatCertify(const CertifyCommand& command,
                                             const CertifyAnswer& answer, const AuditTrail& trail,
                                             const SessionEntry& entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex) {
  const RecordRef& ref = entry.record_refs[answer.certified.seq - 1];
  CertifyReceipt receipt;
  LETHE_ASSIGN_OR_RETURN(receipt.certificate, FetchText(ref, trail, entry));
  receipt.heads = answer.certified.heads;
  receipt.digest = answer.certified.digest;
  if (command.include_bundle) {
    if (!entry.IsPresent(ref)) return EpochPassed("include_bundle");
    LETHE_ASSIGN_OR_RETURN(receipt.bundle,
                           MakeBundle(ref.leaf_hash, *entry.session, WitnessesOf(*entry.session)));
  }
  return receipt;
}

absl::StatusOr<CertifyReceipt> RecordState(const CertifyCommand& command,
                                           const Checkpoint& checkpoint, const AuditTrail& trail,
                                           const AnySession& session, SessionEntry* entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex) {
  CertifyReceipt receipt;
  const audit::StateParts parts = session.StateParts();
  receipt.parts = parts.parts();
  receipt.digest = parts.Digest();
  const bool discloses = !command.disclose_to.empty();
  audit::RecordDraft draft =
      StartDraft(trail, discloses ? audit::RecordKind::kDisclose : audit::RecordKind::kCertify,
                 *entry, command.nonce, command.request.request_id);
  draft.auditor = command.disclose_to;
  draft.digest_after = *receipt.digest;
  draft.retained = RetainedIds(session.inputs());
  draft.proves_optimality = true;
  draft.inputs_evicted = HasSelected(*entry);
  draft.retains_derived = session.inputs().any_derived_from_forgotten();
  LETHE_ASSIGN_OR_RETURN(Witnesses witnesses, ProveHeads(session, checkpoint, &draft, &receipt));
  auto answer = std::make_shared<CertifyAnswer>(
      CertifiedHeads{entry->records.next_seq(), receipt.heads, receipt.digest});
  RecordRef ref;
  RecordedChange change(entry->journal.get());
  const auto prepare = [&](const audit::PreparedRecord& prepared) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    ref = RefOf(prepared, draft, *entry);
    ref.partition_proved =
        std::all_of(receipt.heads.begin(), receipt.heads.end(),
                    [](const HeadReport& head) { return head.partition_proved; });
    return PrepareCertificate(prepared, ref, SaveRequest(command.request, *answer), *entry,
                              &change);
  };
  const absl::StatusOr<audit::FinishedRecord> record =
      trail.recorder->Record(draft, &entry->records, prepare);
  if (!record.ok()) return RecordFailed(record.status(), trail, &change);
  LETHE_RETURN_IF_ERROR(WithStoreReason(change.Finish(nullptr)));
  ref.leaf_index = record->leaf_index;
  entry->record_refs.push_back(ref);
  entry->requests.Remember(command.request, std::move(answer));
  entry->Publish();
  receipt.certificate = {ref, record->envelope, record->proof_file, record->opening};
  if (command.include_bundle) {
    LETHE_ASSIGN_OR_RETURN(receipt.bundle,
                           MakeBundle(ref.leaf_hash, session, std::move(witnesses)));
  }
  return receipt;
}

}  // namespace

absl::StatusOr<std::shared_ptr<StoredAnswer>> DecodeCertifyAnswer(
    ByteReader* reader, absl::Span<const RecordRef> records) {
  LETHE_ASSIGN_OR_RETURN(CertifiedHeads certified, DecodeCertifiedHeads(reader, records));
  return std::make_shared<CertifyAnswer>(std::move(certified));
}

absl::StatusOr<CertifyReceipt> Certify(const CertifyCommand& command, const Call& call,
                                       ComputeScheduler* scheduler, const AuditTrail& trail,
                                       const std::shared_ptr<SessionEntry>& entry) {
  FairMutexLock lock(&entry->mutex);
  LETHE_ASSIGN_OR_RETURN(const AnySession* session, entry->LiveSession());
  LETHE_ASSIGN_OR_RETURN(ComputeSlot slot, scheduler->Acquire(call));
  LETHE_ASSIGN_OR_RETURN(const auto answer, entry->requests.Find<CertifyAnswer>(command.request));
  if (answer != nullptr) return RepeatCertify(command, *answer, trail, *entry);
  return RecordState(
      command, [&] { return slot.Yield(call); }, trail, *session, entry.get());
}

absl::StatusOr<FetchedCertificate> GetCertificate(
    uint64_t seq, bool include_bundle, const Call& call, ComputeScheduler* scheduler,
    const AuditTrail& trail,
    const std::shared_ptr<SessionEntry>& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  FairMutexLock lock(&entry->mutex);
  std::optional<ComputeSlot> slot;  // a record is read, a bundle computed
  if (include_bundle) {
    LETHE_ASSIGN_OR_RETURN(ComputeSlot acquired, scheduler->Acquire(call));
    slot.emplace(std::move(acquired));
  }
  LETHE_ASSIGN_OR_RETURN(const AnySession* session, entry->LiveSession());
  const std::vector<RecordRef>& refs = entry->record_refs;
  if (refs.empty() || seq > refs.size()) {
    return WithErrorInfo(
        absl::NotFoundError(absl::StrCat("seq: this session has ", refs.size(), " records")),
        {"RECORD_NOT_FOUND", {{"field", "seq"}, {"num_records", absl::StrCat(refs.size())}}});
  }
  const RecordRef& ref = seq == 0 ? refs.back() : refs[seq - 1];
  if (include_bundle && !entry->IsPresent(ref)) return EpochPassed("include_bundle");
  FetchedCertificate fetched;
  LETHE_ASSIGN_OR_RETURN(fetched.certificate, FetchText(ref, trail, *entry));
  if (include_bundle) {
    LETHE_ASSIGN_OR_RETURN(fetched.bundle,
                           MakeBundle(ref.leaf_hash, *session, WitnessesOf(*session)));
  }
  return fetched;
}

}  // namespace lethe
