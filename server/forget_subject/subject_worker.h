// RunSubjectJob: takes a ForgetSubject on from where it stands to its summary.
//
// Equation:  none.
// Shapes:    none.
// Units:     sessions.
// Requires:  the registry's fence is closed for the job's label unless the job is done. One call at a time a job.
// Rejects:   what is to be tried again later (subject_pass.h), by calling this again: the job stands where it stood then.
// Effects:   stored before it goes on: the plan, each outcome, then, with the summary's record, the job without label and
//            plan. Every change of the job is made through `change`, so that others may read it meanwhile. When this
//            returns OK the fence is open.
// Numerics:  none.
// Threads:   one thread a job.
#ifndef LETHE_SERVER_FORGET_SUBJECT_SUBJECT_WORKER_H_
#define LETHE_SERVER_FORGET_SUBJECT_SUBJECT_WORKER_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

#include "server/forget_subject/job_rows.h"
#include "server/forget_subject/subject_pass.h"

namespace lethe {

struct JobAtWork {
  const SubjectJob* job = nullptr;
  JobRows* rows = nullptr;
  int64_t num_unserved = 0;
  std::function<void(const std::function<void(SubjectJob*)>&)> change;
};

absl::Status RunSubjectJob(const PassTools& tools, const Call& call, const JobAtWork& work);

}  // namespace lethe

#endif  // LETHE_SERVER_FORGET_SUBJECT_SUBJECT_WORKER_H_
