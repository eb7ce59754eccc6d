#include "server/certification/forgetter.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/certification/fork_forget.h"
#include "server/certification/receipt_codec.h"
#include "server/certification/removal.h"
#include "server/certification/session_methods.h"
#include "server/error/error_info.h"
#include "server/session_registry/durable_entry.h"
#include "server/session_registry/saved_session.h"

namespace lethe {
namespace {

using Clock = std::chrono::steady_clock;

class ForgetAnswer : public StoredAnswer {
 public:
  explicit ForgetAnswer(const ForgetReceipt& value) : receipt(value) {}
  void DropOpenings() override { receipt.digest_after.reset(); }
  std::string Encode(bool keep_openings) const override {
    return EncodeForgetReceipt(receipt, keep_openings);
  }
  ForgetReceipt receipt;
};

absl::Status WithForgetReason(absl::Status status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return WithErrorInfo(std::move(status), {"INPUT_NOT_FOUND", {{"field", "selection"}}});
    case absl::StatusCode::kInvalidArgument:
      return WithErrorInfo(std::move(status), {"INVALID_SELECTION", {{"field", "selection"}}});
    case absl::StatusCode::kFailedPrecondition:
      return WithErrorInfo(std::move(status), {"DERIVED_TOKENS", {{"field", "derived_policy"}}});
    default:
      return status;
  }
}

std::vector<uint64_t> Merge(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  std::vector<uint64_t> merged;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(merged));
  return merged;
}

ForgetReceipt ReceiptOfPlan(const ForgetPlan& plan, DerivedPolicy policy) {
  ForgetReceipt receipt;
  const bool take = policy == DerivedPolicy::kForgetDerived;
  const std::vector<uint64_t> removed =
      take ? Merge(plan.selected_ids, plan.derived_ids) : plan.selected_ids;
  receipt.forgotten = ToRanges(removed);
  receipt.num_forgotten = static_cast<int64_t>(removed.size());
  (take ? receipt.derived_forgotten : receipt.derived_kept) = ToRanges(plan.derived_ids);
  receipt.first_rank = plan.first_rank;
  receipt.num_inputs = plan.num_tokens_after;
  receipt.num_reevaluated = plan.tokens_to_evaluate;
  receipt.num_local_reevaluated = plan.local_tokens;
  receipt.num_replayed = plan.tokens_to_replay;
  receipt.num_snapshots_destroyed = plan.snapshots_destroyed;
  return receipt;
}

ForgetReceipt ReceiptOfResult(const ForgetResult& result) {
  ForgetReceipt receipt;
  const std::vector<uint64_t> removed = Merge(result.forgotten_ids, result.derived_removed_ids);
  receipt.forgotten = ToRanges(removed);
  receipt.num_forgotten = static_cast<int64_t>(removed.size());
  receipt.derived_kept = ToRanges(result.derived_kept_ids);
  receipt.derived_forgotten = ToRanges(result.derived_removed_ids);
  receipt.first_rank = result.first_rank;
  receipt.num_inputs = result.num_tokens_after;
  receipt.num_reevaluated = result.tokens_evaluated;
  receipt.num_local_reevaluated = result.local_tokens;
  receipt.num_replayed = result.tokens_replayed;
  receipt.num_snapshots_destroyed = result.snapshots_destroyed;
  receipt.digest_after = result.digest_after;
  return receipt;
}

audit::RecordDraft DraftForget(const ForgetCommand& command, const AuditTrail& trail,
                               const SessionEntry& entry, const Inputs& before,
                               const AnyStagedForget& staged)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex) {
  const ForgetResult& result = staged.result();
  audit::RecordDraft draft =
      DraftRemoval(StartDraft(trail, audit::RecordKind::kForget, entry, command.nonce,
                              command.request.request_id),
                   entry, before, Merge(result.forgotten_ids, result.derived_removed_ids), staged);
  draft.derived_policy = ToAuditPolicy(command.policy);
  draft.derived_kept = result.derived_kept_ids;
  // Conservative: what an earlier Forget kept may be what this one removes.
  draft.retains_derived = before.any_derived_from_forgotten();
  return draft;
}

// Stages, records and commits; the session is locked and still as it was on every error.
absl::StatusOr<ForgetReceipt> Execute(const ForgetCommand& command, const Call& call,
                                      ComputeScheduler* scheduler, const AuditTrail& trail,
                                      AnySession* session,
                                      SessionEntry* entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const Clock::time_point start = Clock::now();
  ForkForgets forks(entry->LiveForks());
  LETHE_ASSIGN_OR_RETURN(ComputeSlot slot, scheduler->Acquire(call));
  // Between two chunks other sessions compute, and a client that is gone is noticed.
  const Checkpoint checkpoint = [&] { return slot.Yield(call); };
  absl::StatusOr<std::unique_ptr<AnyStagedForget>> staged =
      session->Stage(command.selector, command.policy, checkpoint, command.way);
  if (!staged.ok()) return WithForgetReason(staged.status());
  ForgetReceipt receipt = ReceiptOfResult((*staged)->result());
  receipt.methods = GroupMethods(*entry, (*staged)->result().way);
  const audit::RecordDraft draft = DraftForget(command, trail, *entry, session->inputs(), **staged);
  LETHE_RETURN_IF_ERROR(forks.Stage(draft.forgotten, command, checkpoint));
  // A vector session has changed already, and going through costs less than taking back.
  if (entry->model != nullptr) LETHE_RETURN_IF_ERROR(call.Check());

  // Up to the record: a repeat says the same, also after a restart.
  receipt.duration_us =
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();

  RecordedChange change(entry->journal.get());
  const auto prepare = [&](const audit::PreparedRecord& prepared) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    receipt.record = RefOf(prepared, draft, *entry);
    return PrepareRemoval(trail, prepared, draft, **staged,
                          SaveRequest(command.request, ForgetAnswer(receipt)), *entry, &change);
  };
  const absl::StatusOr<audit::FinishedRecord> record =
      trail.recorder->Record(draft, &entry->records, prepare);
  if (!record.ok()) return RecordFailed(record.status(), trail, &change);
  LETHE_RETURN_IF_ERROR(FinishRemoval(trail, (*staged)->inputs(), &change));
  // Nothing below can fail: the session has been locked since it was staged.
  receipt.record = CommitRemoval(*record, draft, *std::move(staged), entry);
  forks.Commit();
  entry->requests.Remember(command.request, std::make_shared<ForgetAnswer>(receipt));
  entry->Publish();
  return receipt;
}

}  // namespace

audit::DerivedPolicy ToAuditPolicy(DerivedPolicy policy) {
  switch (policy) {
    case DerivedPolicy::kKeepAndReport:
      return audit::DerivedPolicy::kKeepAndReport;
    case DerivedPolicy::kForgetDerived:
      return audit::DerivedPolicy::kForgetDerived;
    case DerivedPolicy::kFail:
    case DerivedPolicy::kUnspecified:
      break;
  }
  return audit::DerivedPolicy::kFail;
}

absl::StatusOr<std::shared_ptr<StoredAnswer>> DecodeForgetAnswer(
    ByteReader* reader, absl::Span<const RecordRef> records) {
  LETHE_ASSIGN_OR_RETURN(const ForgetReceipt receipt, DecodeForgetReceipt(reader, records));
  return std::make_shared<ForgetAnswer>(receipt);
}

absl::StatusOr<ForgetReceipt> ForgetInputs(const ForgetCommand& command, const Call& call,
                                           ComputeScheduler* scheduler, const AuditTrail& trail,
                                           const std::shared_ptr<SessionEntry>& entry) {
  FairMutexLock lock(&entry->mutex);
  LETHE_ASSIGN_OR_RETURN(const auto answer, entry->requests.Find<ForgetAnswer>(command.request));
  if (answer != nullptr) {
    ForgetReceipt receipt = answer->receipt;
    receipt.repeated_request = true;
    return receipt;
  }
  LETHE_ASSIGN_OR_RETURN(AnySession * session, entry->LiveSession());
  if (!command.validate_only) {
    return Execute(command, call, scheduler, trail, session, entry.get());
  }
  LETHE_ASSIGN_OR_RETURN(const ComputeSlot slot, scheduler->Acquire(call));
  const absl::StatusOr<ForgetPlan> plan =
      session->PlanForget(command.selector, command.policy, command.way);
  if (!plan.ok()) return WithForgetReason(plan.status());
  ForgetReceipt receipt = ReceiptOfPlan(*plan, command.policy);
  receipt.methods = GroupMethods(*entry, plan->way);
  return receipt;
}

}  // namespace lethe
