#include "server/certification/selection.h"

#include <utility>

#include "absl/base/thread_annotations.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/certification/session_methods.h"
#include "server/certification/sv_heads.h"
#include "server/error/error_info.h"

namespace lethe {
namespace {

class EvictAnswer : public StoredAnswer {
 public:
  explicit EvictAnswer(const EvictReceipt& value) : receipt(value) {}
  void DropOpenings() override { receipt.digest_after.reset(); }
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

audit::RecordDraft DraftSelection(const EvictCommand& command, const AuditTrail& trail,
                                  const SessionEntry& entry, const Inputs& after,
                                  const AnyStagedForget& staged) {
  const ForgetResult& result = staged.result();
  audit::RecordDraft draft = StartDraft(trail, audit::RecordKind::kSelect, entry, command.nonce,
                                        command.request.request_id);
  draft.digest_before = result.digest_before;
  draft.digest_after = result.digest_after;
  draft.forgotten = result.forgotten_ids;
  draft.retained = RetainedIds(after);
  draft.inputs_evicted = true;
  draft.layers = LayerReports(entry, result.way);
  for (const SvHead& head : staged.SvHeads()) {
    draft.memories.push_back(DraftHead(head, draft.retained));
  }
  draft.stores = {{"session-memory", "replaced"}};
  return draft;
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
      DraftSelection(command, trail, *entry, session->inputs(), **staged);
  const absl::StatusOr<audit::FinishedRecord> record =
      trail.recorder->Record(draft, &entry->records);
  if (!record.ok()) return WithDefaultReason(record.status(), "AUDIT_LOG");
  // Nothing below can fail: the session has been locked since it was staged.
  LETHE_CHECK(session->CommitStaged(*std::move(staged)).ok());
  EvictReceipt receipt;
  receipt.evicted = ToRanges(draft.forgotten);
  receipt.num_evicted = static_cast<int64_t>(draft.forgotten.size());
  receipt.num_inputs = session->num_tokens();
  receipt.epoch = session->epoch();
  receipt.digest_after = draft.digest_after;
  entry->mark.epoch += 1;
  entry->requests.AfterForget(receipt.evicted);
  receipt.record =
      MakeRecordRef(*record, audit::RecordKind::kSelect, entry->mark, session->num_tokens());
  entry->record_refs.push_back(receipt.record);
  entry->requests.Remember(command.request, std::make_shared<EvictAnswer>(receipt));
  entry->Publish();
  return receipt;
}

}  // namespace

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
  if (!session->options().selection) {
    return Precondition("SELECTION_NOT_ALLOWED", "session_id",
                        "session_id: this session was created without selection: its reserve keys "
                        "stay");
  }
  LETHE_RETURN_IF_ERROR(CheckCertified(command.certified_seq, *entry));
  LETHE_ASSIGN_OR_RETURN(const ComputeSlot slot, scheduler->Acquire(call));
  return Execute(command, call, trail, session, entry.get());
}

}  // namespace lethe
