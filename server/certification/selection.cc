#include "server/certification/selection.h"

#include <utility>

#include "absl/base/thread_annotations.h"

#include "kernels/base/status_macros.h"
#include "server/certification/receipt_codec.h"
#include "server/certification/removal.h"
#include "server/error/error_info.h"
#include "server/session_registry/durable_entry.h"
#include "server/session_registry/saved_session.h"

namespace lethe {
namespace {

class EvictAnswer : public StoredAnswer {
 public:
  explicit EvictAnswer(const EvictReceipt& value) : receipt(value) {}
  void DropOpenings() override { receipt.digest_after.reset(); }
  std::string Encode(bool keep_openings) const override {
    return EncodeEvictReceipt(receipt, keep_openings);
  }
  EvictReceipt receipt;
};

absl::Status Precondition(const char* reason, const char* field, const char* message) {
  return WithErrorInfo(absl::FailedPreconditionError(message), {reason, {{"field", field}}});
}

absl::Status CheckCertified(uint64_t certified_seq, const SessionEntry& entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex) {
  const std::vector<RecordRef>& refs = entry.record_refs;
  if (refs.empty() || refs.back().seq != certified_seq ||
      refs.back().kind != audit::RecordKind::kCertify || !entry.IsPresent(refs.back())) {
    return Precondition("EPOCH_PASSED", "certified_seq",
                        "certified_seq: want the session's newest record, a certify record of the "
                        "present state");
  }
  if (!refs.back().partition_proved) {
    return Precondition(
        "PARTITION_NOT_PROVED", "certified_seq",
        "certified_seq: that record does not prove the partition, so the reserve is "
        "not known to be the optimum's");
  }
  return absl::OkStatus();
}

absl::StatusOr<EvictReceipt> Execute(const EvictCommand& command, const Call& call,
                                     const AuditTrail& trail, VectorSession* session,
                                     SessionEntry* entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex) {
  // The last look at the caller: from here on going through costs less than taking back.
  LETHE_RETURN_IF_ERROR(call.Check());
  absl::StatusOr<std::unique_ptr<AnyStagedForget>> staged = session->StageEviction();
  if (!staged.ok()) {
    return WithErrorInfo(staged.status(), {"NO_RESERVE", {{"field", "session_id"}}});
  }
  const audit::RecordDraft draft =
      DraftRemoval(StartDraft(trail, audit::RecordKind::kSelect, *entry, command.nonce,
                              command.request.request_id),
                   *entry, session->inputs(), (*staged)->result().forgotten_ids, **staged);
  EvictReceipt receipt;
  receipt.evicted = ToRanges(draft.forgotten);
  receipt.num_evicted = static_cast<int64_t>(draft.forgotten.size());
  receipt.num_inputs = session->num_tokens();
  receipt.epoch = session->epoch() + 1;
  receipt.digest_after = draft.digest_after;
  RecordedChange change(entry->journal.get());
  const auto prepare = [&](const audit::PreparedRecord& prepared) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    receipt.record = RefOf(prepared, draft, *entry);
    return PrepareRemoval(trail, prepared, draft, **staged,
                          SaveRequest(command.request, EvictAnswer(receipt)), *entry, &change);
  };
  const absl::StatusOr<audit::FinishedRecord> record =
      trail.recorder->Record(draft, &entry->records, prepare);
  if (!record.ok()) return RecordFailed(record.status(), trail, &change);
  LETHE_RETURN_IF_ERROR(FinishRemoval(trail, (*staged)->inputs(), &change));
  // Nothing below can fail: the session has been locked since it was staged.
  receipt.record = CommitRemoval(*record, draft, *std::move(staged), entry);
  entry->requests.Remember(command.request, std::make_shared<EvictAnswer>(receipt));
  entry->Publish();
  return receipt;
}

}  // namespace

absl::StatusOr<std::shared_ptr<StoredAnswer>> DecodeEvictAnswer(
    ByteReader* reader, absl::Span<const RecordRef> records) {
  LETHE_ASSIGN_OR_RETURN(const EvictReceipt receipt, DecodeEvictReceipt(reader, records));
  return std::make_shared<EvictAnswer>(receipt);
}

absl::StatusOr<EvictReceipt> EvictReserve(const EvictCommand& command, const Call& call,
                                          ComputeScheduler* scheduler, const AuditTrail& trail,
                                          const std::shared_ptr<SessionEntry>& entry) {
  FairMutexLock lock(&entry->mutex);
  LETHE_ASSIGN_OR_RETURN(const auto answer, entry->requests.Find<EvictAnswer>(command.request));
  if (answer != nullptr) {
    EvictReceipt receipt = answer->receipt;
    receipt.repeated_request = true;
    return receipt;
  }
  LETHE_ASSIGN_OR_RETURN(VectorSession * session, entry->LiveVectorSession());
  if (const absl::Status allowed = session->CheckSelection(); !allowed.ok()) {
    return WithErrorInfo(allowed, {"SELECTION_NOT_ALLOWED", {{"field", "session_id"}}});
  }
  LETHE_RETURN_IF_ERROR(CheckCertified(command.certified_seq, *entry));
  LETHE_ASSIGN_OR_RETURN(const ComputeSlot slot, scheduler->Acquire(call));
  return Execute(command, call, trail, session, entry.get());
}

}  // namespace lethe
