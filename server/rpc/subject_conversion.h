// ReadSubjectCommand, SetSubjectJob, SetSubjectPlan, SetSubjectOutcome, SetSubjectSummary: a ForgetSubject in messages.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   ReadSubjectCommand: INVALID_ARGUMENT, reason INVALID_FIELD.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_SUBJECT_CONVERSION_H_
#define LETHE_SERVER_RPC_SUBJECT_CONVERSION_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "lethe/v1/forgetting.pb.h"
#include "server/forget_subject/subject_forgetter.h"

namespace lethe {

absl::StatusOr<DerivedPolicy> ReadPolicy(v1::DerivedPolicy policy);
absl::StatusOr<SubjectCommand> ReadSubjectCommand(const v1::ForgetSubjectRequest& request);
absl::Status CheckJobId(const std::string& job_id);

void SetSubjectJob(const SubjectProgress& progress, v1::SubjectJob* message);
void SetSubjectPlan(const SubjectPlan& plan, v1::SubjectPlan* message);
void SetSubjectOutcome(const SubjectOutcome& outcome, v1::SubjectOutcome* message);
void SetSubjectSummary(const SubjectSummaryText& text, v1::SubjectSummary* message);

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_SUBJECT_CONVERSION_H_
