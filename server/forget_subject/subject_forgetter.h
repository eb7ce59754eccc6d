// SubjectForgetter: the jobs that forget a subject label in every session, one after the other, each until it is done,
// whatever ends the process in between.
//
// A job is stored, and its label kept out of every session (SubjectFence), before Start returns. Its thread then looks
// at every session that is served, notes those that hold the label, forgets it in one after the other, each with a
// certificate of its own, and ends with a signed summary. With the summary the label goes from the store. After a start
// a job goes on where it was.
//
// Equation:  none.
// Shapes:    job_id: 26 characters of [a-z2-7].
// Units:     sessions, inputs, microseconds since the epoch.
// Requires:  the pointers outlive the object, and what Recover was given outlives Stop. Commands passed the edge's checks.
//            Recover before anything else.
// Rejects:   Start: FAILED_PRECONDITION, reason SUBJECT_BEING_FORGOTTEN, while another job has the label;
//            INVALID_ARGUMENT, reason REQUEST_ID_REUSED; RESOURCE_EXHAUSTED, reason TOO_MANY_JOBS; reason SESSION_STORE.
//            Find, Wait, Outcomes, Summary, Delete: NOT_FOUND, reason JOB_NOT_FOUND, for another tenant's job too. Summary, Delete:
//            FAILED_PRECONDITION, reason JOB_RUNNING, before the job is done. Summary: reason AUDIT_LOG.
// Effects:   Start of a known request_id returns its job. What is in the way for a while (a frozen log, a full disk)
//            makes the job wait and try again, with the reason in its progress; what is wrong with one session is that
//            session's outcome. At most kFinishedJobsMax done jobs of a tenant are kept, the newest. Delete destroys the job's
//            outcomes, its summary's salt and the hash of its request; the record stays in the log.
// Numerics:  none.
// Threads:   safe; one thread of its own from the first Start or Resume to Stop.
#ifndef LETHE_SERVER_FORGET_SUBJECT_SUBJECT_FORGETTER_H_
#define LETHE_SERVER_FORGET_SUBJECT_SUBJECT_FORGETTER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/mutex.h"
#include "server/forget_subject/job_rows.h"
#include "server/forget_subject/subject_pass.h"

namespace lethe {

struct SubjectCommand {
  std::string label;
  DerivedPolicy policy = DerivedPolicy::kUnspecified;
  std::string nonce;  // empty: drawn here
  RequestKey request;
  std::string tenant = kLocalTenant;  // in whose sessions the label is forgotten
};

// Counts of a job, no content.
struct SubjectProgress {
  std::string job_id;
  JobStage stage = JobStage::kExamining;
  DerivedPolicy policy = DerivedPolicy::kFail;
  int64_t start_us = 0;
  int64_t end_us = 0;  // 0: not done
  int64_t num_examined = 0;
  int64_t num_unserved = 0;
  int64_t num_sessions = 0;  // that hold or held the label, as far as it is known
  int64_t num_forgotten = 0;
  int64_t num_failed = 0;
  int64_t num_deleted = 0;
  int64_t num_nothing_left = 0;
  int64_t num_inputs = 0;      // forgotten
  std::string waiting_reason;  // why it waits to try again; empty: it does not
  uint64_t version = 0;        // grows with every change
};

struct SubjectSummaryText {
  uint64_t leaf_index = 0;
  std::string envelope;
  std::string log_proof;
  std::string opening;
};

// What a ForgetSubject would do (validate_only).
struct SubjectPlan {
  int64_t num_examined = 0;
  int64_t num_sessions = 0;
  int64_t num_inputs = 0;  // that would go, derived ones included by the policy
  int64_t num_failed = 0;  // sessions that would refuse
};

class SubjectForgetter {
 public:
  static constexpr size_t kFinishedJobsMax = 64;
  static constexpr size_t kRunningJobsMax = 256;

  explicit SubjectForgetter(const PassTools& tools) : tools_(tools) {}
  ~SubjectForgetter();
  SubjectForgetter(const SubjectForgetter&) = delete;
  SubjectForgetter& operator=(const SubjectForgetter&) = delete;

  // Before the first call is served. Damaged jobs are reported and stay on disk.
  absl::Status Recover(SessionStore* store, int64_t num_unserved);
  void Resume();
  // Ends between two steps of a job; nothing is lost.
  void Stop();

  absl::StatusOr<SubjectProgress> Start(const SubjectCommand& command);
  absl::StatusOr<SubjectPlan> Plan(const SubjectCommand& command, const Call& call);
  // These find the tenant's jobs alone.
  absl::StatusOr<SubjectProgress> Find(const std::string& job_id,
                                       const std::string& tenant = kLocalTenant) const;
  // At most max_count jobs, by start, the newest first, behind `after` (empty: from the beginning).
  std::vector<SubjectProgress> List(const std::string& after, size_t max_count,
                                    const std::string& tenant = kLocalTenant) const;
  // Returns when the job's version is above `version`, or at the deadline.
  absl::StatusOr<SubjectProgress> Wait(const std::string& job_id, uint64_t version,
                                       std::chrono::steady_clock::time_point deadline,
                                       const std::string& tenant = kLocalTenant);
  absl::StatusOr<std::vector<SubjectOutcome>> Outcomes(
      const std::string& job_id, size_t first, size_t max_count,
      const std::string& tenant = kLocalTenant) const;
  absl::StatusOr<SubjectSummaryText> Summary(const std::string& job_id,
                                             const std::string& tenant = kLocalTenant) const;
  // Leaf hashes of the summaries of the tenant's done jobs.
  std::set<audit::Sha256Digest> SummaryLeaves(const std::string& tenant) const;
  absl::Status Delete(const std::string& job_id, const std::string& tenant = kLocalTenant);

 private:
  struct Job {
    SubjectJob job;
    JobRows rows{nullptr};
    std::string waiting_reason;
    uint64_t version = 0;
  };
  class Worker;

  absl::StatusOr<std::shared_ptr<Job>> FindJob(const std::string& job_id,
                                               const std::string& tenant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<Job>> FindDone(const std::string& job_id,
                                                const std::string& tenant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<Job>> FindRequest(const std::string& tenant,
                                                   const RequestKey& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Adopt(std::shared_ptr<Job> job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status DropOldest(const std::string& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunJobs();
  void StartThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const PassTools tools_;
  SessionStore* store_ = nullptr;
  int64_t num_unserved_ = 0;
  std::atomic<bool> stopping_{false};
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<Job>> jobs_ ABSL_GUARDED_BY(mutex_);  // by start
  std::deque<std::shared_ptr<Job>> queue_ ABSL_GUARDED_BY(mutex_);  // that are not done
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lethe

#endif  // LETHE_SERVER_FORGET_SUBJECT_SUBJECT_FORGETTER_H_
