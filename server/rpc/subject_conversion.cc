#include "server/rpc/subject_conversion.h"

#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/rpc/validation.h"

namespace lethe {
namespace {

void SetMicros(int64_t micros, google::protobuf::Timestamp* time) {
  time->set_seconds(micros / 1'000'000);
  time->set_nanos(static_cast<int32_t>(micros % 1'000'000 * 1'000));
}

v1::SubjectJobState StateOf(JobStage stage) {
  switch (stage) {
    case JobStage::kExamining:
      return v1::SUBJECT_JOB_STATE_EXAMINING;
    case JobStage::kForgetting:
      return v1::SUBJECT_JOB_STATE_FORGETTING;
    case JobStage::kDone:
      break;
  }
  return v1::SUBJECT_JOB_STATE_DONE;
}

v1::DerivedPolicy PolicyOf(DerivedPolicy policy) {
  switch (policy) {
    case DerivedPolicy::kKeepAndReport:
      return v1::DERIVED_POLICY_KEEP_AND_REPORT;
    case DerivedPolicy::kForgetDerived:
      return v1::DERIVED_POLICY_FORGET_DERIVED;
    case DerivedPolicy::kFail:
    case DerivedPolicy::kUnspecified:
      break;
  }
  return v1::DERIVED_POLICY_FAIL;
}

}  // namespace

absl::StatusOr<DerivedPolicy> ReadPolicy(v1::DerivedPolicy policy) {
  switch (policy) {
    case v1::DERIVED_POLICY_KEEP_AND_REPORT:
      return DerivedPolicy::kKeepAndReport;
    case v1::DERIVED_POLICY_FORGET_DERIVED:
      return DerivedPolicy::kForgetDerived;
    case v1::DERIVED_POLICY_FAIL:
      return DerivedPolicy::kFail;
    default:
      return InvalidFieldError("derived_policy", "KEEP_AND_REPORT, FORGET_DERIVED or FAIL");
  }
}

absl::StatusOr<SubjectCommand> ReadSubjectCommand(const v1::ForgetSubjectRequest& request) {
  SubjectCommand command;
  if (request.subject().empty() || request.subject().size() > kLabelBytesMax) {
    return InvalidFieldError("subject", "1 to 128 bytes of UTF-8");
  }
  command.label = request.subject();
  LETHE_ASSIGN_OR_RETURN(command.policy, ReadPolicy(request.derived_policy()));
  LETHE_RETURN_IF_ERROR(CheckNonce(request.nonce()));
  LETHE_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  command.nonce = request.nonce();
  command.request = MakeRequestKey(request, request.request_id());
  return command;
}

absl::Status CheckJobId(const std::string& job_id) {
  if (CheckSessionId(job_id).ok()) return absl::OkStatus();
  return InvalidFieldError("job_id", "1 to 64 lower-case letters, digits and hyphens");
}

void SetSubjectJob(const SubjectProgress& progress, v1::SubjectJob* message) {
  message->set_job_id(progress.job_id);
  message->set_state(StateOf(progress.stage));
  message->set_derived_policy(PolicyOf(progress.policy));
  SetMicros(progress.start_us, message->mutable_start_time());
  if (progress.end_us != 0) SetMicros(progress.end_us, message->mutable_end_time());
  message->set_num_examined(progress.num_examined);
  message->set_num_sessions(progress.num_sessions);
  message->set_num_forgotten(progress.num_forgotten);
  message->set_num_failed(progress.num_failed);
  message->set_num_deleted(progress.num_deleted);
  message->set_num_nothing_left(progress.num_nothing_left);
  message->set_num_inputs(progress.num_inputs);
  message->set_num_unserved(progress.num_unserved);
  message->set_waiting_reason(progress.waiting_reason);
}

void SetSubjectPlan(const SubjectPlan& plan, v1::SubjectPlan* message) {
  message->set_num_examined(plan.num_examined);
  message->set_num_sessions(plan.num_sessions);
  message->set_num_inputs(plan.num_inputs);
  message->set_num_failed(plan.num_failed);
}

void SetSubjectOutcome(const SubjectOutcome& outcome, v1::SubjectOutcome* message) {
  message->set_session_id(outcome.session_id);
  message->set_reason(outcome.reason);
  message->set_num_inputs(outcome.num_inputs);
  message->set_seq(outcome.seq);
  switch (outcome.kind) {
    case OutcomeKind::kForgotten:
      message->set_kind(v1::SUBJECT_OUTCOME_KIND_FORGOTTEN);
      break;
    case OutcomeKind::kFailed:
      message->set_kind(v1::SUBJECT_OUTCOME_KIND_FAILED);
      break;
    case OutcomeKind::kDeleted:
      message->set_kind(v1::SUBJECT_OUTCOME_KIND_DELETED);
      break;
    case OutcomeKind::kNothingLeft:
      message->set_kind(v1::SUBJECT_OUTCOME_KIND_NOTHING_LEFT);
      break;
  }
}

void SetSubjectSummary(const SubjectSummaryText& text, v1::SubjectSummary* message) {
  message->set_leaf_index(text.leaf_index);
  message->set_envelope(text.envelope);
  message->set_log_proof(text.log_proof);
  message->set_opening(text.opening);
}

}  // namespace lethe
