#include "server/forget_subject/subject_pass.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/certificate/dsse.h"
#include "kernels/base/status_macros.h"
#include "server/certification/fork_forget.h"
#include "server/error/error_info.h"
#include "server/session_registry/durable_entry.h"
#include "server/session_registry/saved_session.h"

namespace lethe {
namespace {

ForgetCommand CommandFor(const SubjectJob& job) {
  ForgetCommand command;
  command.selector = ForgetSelector::Subject(job.label);
  command.policy = job.policy;
  command.nonce = job.nonce;
  command.request = {RequestIdOf(job), audit::Sha256Of(job.job_id)};
  return command;
}

// What a fork has of its own under the label goes, without a record: the session holds nothing of it.
absl::Status ForgetInForks(const std::string& label, const Call& call, ComputeScheduler* scheduler,
                           SessionEntry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex) {
  ForkForgets forks(entry->LiveForks());
  if (forks.empty()) return absl::OkStatus();
  ForgetCommand command;
  command.selector = ForgetSelector::Subject(label);
  command.policy = DerivedPolicy::kForgetDerived;
  LETHE_ASSIGN_OR_RETURN(ComputeSlot slot, scheduler->Acquire(call));
  LETHE_RETURN_IF_ERROR(forks.Stage({}, command, [&] { return slot.Yield(call); }));
  forks.Commit();
  return absl::OkStatus();
}

// Answers that are kept for repeats hold the label of a Generate.
absl::Status ForgetInAnswers(const std::string& label, SessionEntry* entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex) {
  if (!entry->requests.DropSubject(label) || entry->journal == nullptr) return absl::OkStatus();
  LETHE_RETURN_IF_ERROR(entry->LiveSession().status());
  return WithStoreReason(entry->journal->Renew(WriteSnapshot(SaveEntry(*entry))));
}

// The outcome that a record of this job in the session's list tells of; a kill may have come before it was noted.
absl::StatusOr<SubjectOutcome> FindRecord(const SubjectJob& job, const AuditTrail& trail,
                                          const SessionEntry& entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry.mutex) {
  SubjectOutcome outcome;
  outcome.session_id = entry.session_id;
  outcome.kind = OutcomeKind::kNothingLeft;
  const std::string request_id = RequestIdOf(job);
  for (auto ref = entry.record_refs.rbegin(); ref != entry.record_refs.rend(); ++ref) {
    if (ref->kind != audit::RecordKind::kForget) continue;
    const absl::StatusOr<std::string> body = trail.log->Body(ref->leaf_hash);
    if (absl::IsNotFound(body.status())) continue;  // erased
    LETHE_RETURN_IF_ERROR(body.status());
    LETHE_ASSIGN_OR_RETURN(const audit::DsseEnvelope envelope, audit::ParseEnvelope(*body));
    LETHE_ASSIGN_OR_RETURN(const audit::Statement statement,
                           audit::ParseStatement(envelope.payload));
    if (statement.request_id != request_id) continue;
    outcome.kind = OutcomeKind::kForgotten;
    outcome.seq = ref->seq;
    outcome.leaf_hash = ref->leaf_hash;
    outcome.num_inputs = static_cast<int64_t>(statement.forgot.count);
    return outcome;
  }
  return outcome;
}

bool IsToBeTriedAgain(const absl::Status& status, const std::string& reason) {
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
      return true;
    default:
      return reason == "AUDIT_LOG";
  }
}

absl::StatusOr<SubjectOutcome> OutcomeOfError(const absl::Status& status,
                                              const std::string& session_id) {
  SubjectOutcome outcome;
  outcome.session_id = session_id;
  outcome.reason = ErrorInfoOf(status).reason;
  if (IsToBeTriedAgain(status, outcome.reason)) return status;
  outcome.kind = OutcomeKind::kFailed;
  if (outcome.reason == "SESSION_DELETED" || outcome.reason == "SESSION_NOT_FOUND") {
    outcome.kind = OutcomeKind::kDeleted;
    outcome.reason.clear();
  }
  return outcome;
}

}  // namespace

std::string RequestIdOf(const SubjectJob& job) {
  return absl::StrCat(audit::kSubjectRequestPrefix, job.job_id);
}

absl::StatusOr<bool> HoldsSubject(const std::string& label, SessionEntry* entry) {
  if (entry->session != nullptr) {
    return !entry->session->inputs().RanksOfSubject(label).empty();
  }
  const absl::Status available = entry->Availability();
  if (absl::IsDataLoss(available)) return available;
  // Deleted; one whose model is not loaded is read all the same.
  if (available.ok() && !entry->restore) return false;
  LETHE_ASSIGN_OR_RETURN(const DecodedInputs decoded, entry->journal->ReadInputs());
  return !decoded.inputs.RanksOfSubject(label).empty();
}

absl::StatusOr<bool> ExamineSession(const std::string& label, const Call& call,
                                    ComputeScheduler* scheduler,
                                    const std::shared_ptr<SessionEntry>& entry) {
  FairMutexLock lock(&entry->mutex);
  entry->StopWriters(label);
  LETHE_ASSIGN_OR_RETURN(const bool holds, HoldsSubject(label, entry.get()));
  if (holds) return true;
  LETHE_RETURN_IF_ERROR(ForgetInForks(label, call, scheduler, entry.get()));
  LETHE_RETURN_IF_ERROR(ForgetInAnswers(label, entry.get()));
  return false;
}

absl::StatusOr<SubjectOutcome> ForgetInSession(const SubjectJob& job, const std::string& session_id,
                                               const Call& call, const PassTools& tools) {
  const absl::StatusOr<std::shared_ptr<SessionEntry>> entry =
      tools.sessions->Find(job.tenant, session_id);
  if (!entry.ok()) return OutcomeOfError(entry.status(), session_id);
  const absl::StatusOr<ForgetReceipt> receipt =
      ForgetInputs(CommandFor(job), call, tools.scheduler, *tools.trail, *entry);
  if (absl::IsNotFound(receipt.status())) {
    LETHE_RETURN_IF_ERROR(ExamineSession(job.label, call, tools.scheduler, *entry).status());
    FairMutexLock lock(&(*entry)->mutex);
    return FindRecord(job, *tools.trail, **entry);
  }
  if (!receipt.ok()) return OutcomeOfError(receipt.status(), session_id);
  SubjectOutcome outcome;
  outcome.session_id = session_id;
  outcome.seq = receipt->record->seq;
  outcome.leaf_hash = receipt->record->leaf_hash;
  outcome.num_inputs = receipt->num_forgotten;
  return outcome;
}

}  // namespace lethe
