// ExamineSession, HoldsSubject, ForgetInSession: what a ForgetSubject does with one session.
//
// Equation:  none.
// Shapes:    none.
// Units:     inputs.
// Requires:  ExamineSession: the registry's fence is closed for the label. ForgetInSession: ExamineSession was called of
//            the session since then.
// Rejects:   ExamineSession: DATA_LOSS and what SessionStore rejects. ForgetInSession: what is not the session's own
//            fault, to be tried again later: CANCELLED, the audit log (reason AUDIT_LOG), a full disk, a store that
//            takes no change. What is becomes an outcome.
// Effects:   ExamineSession says whether the session holds inputs under the label. From then on nobody brings one in:
//            whoever was about to is stopped. Where it holds none, what running forks and answers for repeats have of
//            the label goes. A stored session is not evaluated for this. ForgetInSession is one Forget (forgetter.h)
//            with the request id of the job; a second call finds the record of the first.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_FORGET_SUBJECT_SUBJECT_PASS_H_
#define LETHE_SERVER_FORGET_SUBJECT_SUBJECT_PASS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "server/certification/forgetter.h"
#include "server/forget_subject/subject_job.h"
#include "server/session_registry/session_registry.h"

namespace lethe {

absl::StatusOr<bool> ExamineSession(const std::string& label, const Call& call,
                                    ComputeScheduler* scheduler,
                                    const std::shared_ptr<SessionEntry>& entry);

// True when the session holds inputs under the label; changes nothing.
absl::StatusOr<bool> HoldsSubject(const std::string& label, SessionEntry* entry)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex);

struct PassTools {
  SessionRegistry* sessions = nullptr;
  ComputeScheduler* scheduler = nullptr;
  const AuditTrail* trail = nullptr;
};

absl::StatusOr<SubjectOutcome> ForgetInSession(const SubjectJob& job, const std::string& session_id,
                                               const Call& call, const PassTools& tools);

// The request id of the job's Forgets.
std::string RequestIdOf(const SubjectJob& job);

}  // namespace lethe

#endif  // LETHE_SERVER_FORGET_SUBJECT_SUBJECT_PASS_H_
