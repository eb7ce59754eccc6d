#include "server/forget_subject/subject_forgetter.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "kernels/base/wall_clock.h"
#include "server/diagnostics/log.h"
#include "server/error/error_info.h"
#include "server/forget_subject/subject_worker.h"
#include "server/session_registry/durable_entry.h"

namespace lethe {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kPlanPageSessions = 64;
constexpr std::chrono::seconds kPauseMin{1};
constexpr std::chrono::seconds kPauseMax{60};

class WorkerCall : public Call {
 public:
  explicit WorkerCall(const std::atomic<bool>* stopping) : stopping_(stopping) {}
  absl::Status Check() const override {
    return *stopping_ ? absl::CancelledError("the server stops") : absl::OkStatus();
  }

 private:
  const std::atomic<bool>* const stopping_;
};

absl::Status JobNotFound() {
  return WithErrorInfo(absl::NotFoundError("job_id: no such job"),
                       {"JOB_NOT_FOUND", {{"field", "job_id"}}});
}

SubjectProgress ProgressOf(const SubjectJob& job) {
  SubjectProgress progress;
  progress.job_id = job.job_id;
  progress.stage = job.stage;
  progress.policy = job.policy;
  progress.start_us = job.start_us;
  progress.end_us = job.end_us;
  progress.num_examined = job.num_examined;
  progress.num_unserved = job.num_unserved;
  progress.num_sessions = static_cast<int64_t>(std::max(job.plan.size(), job.outcomes.size()));
  for (const SubjectOutcome& outcome : job.outcomes) {
    progress.num_inputs += outcome.num_inputs;
    switch (outcome.kind) {
      case OutcomeKind::kForgotten:
        ++progress.num_forgotten;
        break;
      case OutcomeKind::kFailed:
        ++progress.num_failed;
        break;
      case OutcomeKind::kDeleted:
        ++progress.num_deleted;
        break;
      case OutcomeKind::kNothingLeft:
        ++progress.num_nothing_left;
        break;
    }
  }
  return progress;
}

auto StartOrder(const SubjectJob& job) { return std::tie(job.start_us, job.job_id); }

absl::Status LoadJob(JobRows* rows, SubjectJob* job) {
  LETHE_ASSIGN_OR_RETURN(std::vector<std::string> bodies, rows->ReadAll());
  absl::Status status;
  for (std::string& body : bodies) {
    if (status.ok()) status = ApplyRow(body, job);
    audit::SecureWipe(&body);
  }
  return status;
}

}  // namespace

SubjectForgetter::~SubjectForgetter() { Stop(); }

absl::Status SubjectForgetter::Recover(SessionStore* store, int64_t num_unserved) {
  MutexLock lock(&mutex_);
  store_ = store;
  num_unserved_ = num_unserved;
  LETHE_ASSIGN_OR_RETURN(auto by_number, store->AllRows());
  LETHE_ASSIGN_OR_RETURN(const std::set<int64_t> incomplete, store->Incomplete());
  for (auto& [number, rows] : by_number) {
    if (rows.front().kind != RowKind::kJob) continue;
    auto job = std::make_shared<Job>();
    job->rows = JobRows(store, number, std::move(rows));
    absl::Status status = LoadJob(&job->rows, &job->job);
    if (incomplete.count(number) > 0) status = absl::DataLossError("stored job: rows are missing");
    if (status.ok() && job->job.stage != JobStage::kDone &&
        tools_.sessions->fence()->IsClosed(job->job.tenant, job->job.label)) {
      status = absl::DataLossError("stored job: another one has its label");
    }
    if (!status.ok()) {
      LogError(absl::StrCat("stored job ", number,
                            " is damaged and cannot go on; start it again: ", status.message()));
      continue;
    }
    Adopt(std::move(job));
  }
  return absl::OkStatus();
}

void SubjectForgetter::Adopt(std::shared_ptr<Job> job) {
  const auto before = [](const std::shared_ptr<Job>& a, const std::shared_ptr<Job>& b) {
    return StartOrder(a->job) < StartOrder(b->job);
  };
  if (job->job.stage != JobStage::kDone) {
    tools_.sessions->fence()->Close(job->job.tenant, job->job.label);
    queue_.insert(std::upper_bound(queue_.begin(), queue_.end(), job, before), job);
    LogInfo(absl::StrCat("subject job ", job->job.job_id, ": goes on"));
  }
  jobs_.insert(std::upper_bound(jobs_.begin(), jobs_.end(), job, before), job);
}

void SubjectForgetter::StartThread() {
  if (!thread_.joinable()) thread_ = std::thread([this] { RunJobs(); });
}

void SubjectForgetter::Resume() {
  MutexLock lock(&mutex_);
  stopping_ = false;
  if (!queue_.empty()) StartThread();
}

void SubjectForgetter::Stop() {
  std::thread thread;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
    std::swap(thread, thread_);
  }
  if (thread.joinable()) thread.join();
}

void SubjectForgetter::RunJobs() {
  const WorkerCall call(&stopping_);
  std::chrono::seconds pause = kPauseMin;
  while (true) {
    std::shared_ptr<Job> job;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (stopping_) return;
      job = queue_.front();
      job->waiting_reason.clear();
    }
    const auto change = [&](const std::function<void(SubjectJob*)>& apply) {
      MutexLock lock(&mutex_);
      apply(&job->job);
      ++job->version;
      changed_.SignalAll();
    };
    const absl::Status status =
        RunSubjectJob(tools_, call, {&job->job, &job->rows, num_unserved_, change});
    MutexLock lock(&mutex_);
    if (stopping_) return;
    queue_.pop_front();
    if (status.ok()) {
      pause = kPauseMin;
      if (const absl::Status dropped = DropOldest(job->job.tenant); !dropped.ok()) {
        LogError(absl::StrCat("an old subject job stays stored: ", dropped.message()));
      }
      continue;
    }
    // Others may be able to go on meanwhile.
    queue_.push_back(job);
    job->waiting_reason = ErrorInfoOf(status).reason;
    ++job->version;
    changed_.SignalAll();
    LogError(absl::StrCat("subject job ", job->job.job_id, " waits: ", job->waiting_reason));
    const SteadyClock::time_point end = SteadyClock::now() + pause;
    while (!stopping_ && SteadyClock::now() < end) changed_.WaitUntil(&mutex_, end);
    pause = std::min(pause * 2, kPauseMax);
  }
}

absl::Status SubjectForgetter::DropOldest(const std::string& tenant) {
  const auto is_done = [&](const std::shared_ptr<Job>& job) {
    return job->job.stage == JobStage::kDone && job->job.tenant == tenant;
  };
  while (std::count_if(jobs_.begin(), jobs_.end(), is_done) >
         static_cast<int64_t>(kFinishedJobsMax)) {
    const auto oldest = std::find_if(jobs_.begin(), jobs_.end(), is_done);
    LETHE_RETURN_IF_ERROR((*oldest)->rows.Remove());
    jobs_.erase(oldest);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SubjectForgetter::Job>> SubjectForgetter::FindRequest(
    const std::string& tenant, const RequestKey& request) const {
  if (request.request_id.empty()) return std::shared_ptr<Job>();
  for (const std::shared_ptr<Job>& job : jobs_) {
    if (job->job.tenant != tenant || job->job.request.request_id != request.request_id) continue;
    if (job->job.request.content == request.content) return job;
    return WithErrorInfo(
        absl::InvalidArgumentError("request_id: was used for a request with other content"),
        {"REQUEST_ID_REUSED", {{"field", "request_id"}}});
  }
  return std::shared_ptr<Job>();
}

absl::StatusOr<SubjectProgress> SubjectForgetter::Start(const SubjectCommand& command) {
  MutexLock lock(&mutex_);
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<Job> known,
                         FindRequest(command.tenant, command.request));
  if (known != nullptr) return ProgressOf(known->job);
  if (queue_.size() >= kRunningJobsMax) {
    return WithErrorInfo(absl::ResourceExhaustedError(
                             absl::StrCat("at most ", kRunningJobsMax, " jobs run at a time")),
                         {"TOO_MANY_JOBS", {}});
  }
  SubjectFence* const fence = tools_.sessions->fence();
  if (fence->IsClosed(command.tenant, command.label)) return SubjectBeingForgottenError();
  auto job = std::make_shared<Job>();
  job->rows = JobRows(store_);
  job->job.job_id = RandomId();
  job->job.tenant = command.tenant;
  job->job.label = command.label;
  job->job.policy = command.policy;
  job->job.nonce = command.nonce.empty() ? RandomNonce() : command.nonce;
  job->job.request = command.request;
  job->job.start_us = NowMicros();
  tools_.sessions->CloseSubject(command.tenant, command.label);
  const absl::Status stored = job->rows.Add(EncodeStart(job->job), Durability::kSynced);
  if (!stored.ok()) {
    fence->Open(command.tenant, command.label);
    return WithStoreReason(stored);
  }
  jobs_.push_back(job);
  queue_.push_back(job);
  LogInfo(absl::StrCat("subject job ", job->job.job_id, ": begins"));
  StartThread();
  changed_.SignalAll();
  return ProgressOf(job->job);
}

absl::StatusOr<SubjectPlan> SubjectForgetter::Plan(const SubjectCommand& command,
                                                   const Call& call) {
  SubjectPlan plan;
  ForgetCommand forget;
  forget.selector = ForgetSelector::Subject(command.label);
  forget.policy = command.policy;
  forget.validate_only = true;
  std::string after;
  while (true) {
    const auto page = tools_.sessions->List(command.tenant, after, kPlanPageSessions);
    if (page.empty()) return plan;
    after = page.back()->session_id;
    for (const std::shared_ptr<SessionEntry>& entry : page) {
      LETHE_RETURN_IF_ERROR(call.Check());
      ++plan.num_examined;
      absl::StatusOr<bool> holds = false;
      {
        FairMutexLock lock(&entry->mutex);
        holds = HoldsSubject(command.label, entry.get());
      }
      if (holds.ok() && !*holds) continue;
      const absl::StatusOr<ForgetReceipt> receipt =
          ForgetInputs(forget, call, tools_.scheduler, *tools_.trail, entry);
      LETHE_RETURN_IF_ERROR(call.Check());
      if (absl::IsNotFound(receipt.status()) || absl::IsAborted(receipt.status())) continue;
      ++plan.num_sessions;
      if (!receipt.ok()) ++plan.num_failed;
      if (receipt.ok()) plan.num_inputs += receipt->num_forgotten;
    }
  }
}

absl::StatusOr<std::shared_ptr<SubjectForgetter::Job>> SubjectForgetter::FindJob(
    const std::string& job_id, const std::string& tenant) const {
  for (const std::shared_ptr<Job>& job : jobs_) {
    if (job->job.job_id == job_id && job->job.tenant == tenant) return job;
  }
  return JobNotFound();
}

absl::StatusOr<std::shared_ptr<SubjectForgetter::Job>> SubjectForgetter::FindDone(
    const std::string& job_id, const std::string& tenant) const {
  LETHE_ASSIGN_OR_RETURN(std::shared_ptr<Job> job, FindJob(job_id, tenant));
  if (job->job.stage == JobStage::kDone) return job;
  return WithErrorInfo(absl::FailedPreconditionError("job_id: the job is not done"),
                       {"JOB_RUNNING", {{"field", "job_id"}}});
}

absl::StatusOr<SubjectProgress> SubjectForgetter::Find(const std::string& job_id,
                                                       const std::string& tenant) const {
  MutexLock lock(&mutex_);
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, FindJob(job_id, tenant));
  SubjectProgress progress = ProgressOf(job->job);
  progress.waiting_reason = job->waiting_reason;
  progress.version = job->version;
  return progress;
}

std::vector<SubjectProgress> SubjectForgetter::List(const std::string& after, size_t max_count,
                                                    const std::string& tenant) const {
  std::vector<SubjectProgress> page;
  MutexLock lock(&mutex_);
  bool found = after.empty();
  for (auto job = jobs_.rbegin(); job != jobs_.rend() && page.size() < max_count; ++job) {
    if ((*job)->job.tenant != tenant) continue;
    if (found) {
      page.push_back(ProgressOf((*job)->job));
      page.back().waiting_reason = (*job)->waiting_reason;
    }
    found = found || (*job)->job.job_id == after;
  }
  return page;
}

absl::StatusOr<SubjectProgress> SubjectForgetter::Wait(const std::string& job_id, uint64_t version,
                                                       SteadyClock::time_point deadline,
                                                       const std::string& tenant) {
  {
    MutexLock lock(&mutex_);
    while (!stopping_ && SteadyClock::now() < deadline) {
      LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, FindJob(job_id, tenant));
      if (job->version > version) break;
      changed_.WaitUntil(&mutex_, deadline);
    }
  }
  return Find(job_id, tenant);
}

absl::StatusOr<std::vector<SubjectOutcome>> SubjectForgetter::Outcomes(
    const std::string& job_id, size_t first, size_t max_count, const std::string& tenant) const {
  MutexLock lock(&mutex_);
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, FindJob(job_id, tenant));
  const std::vector<SubjectOutcome>& all = job->job.outcomes;
  const size_t begin = std::min(first, all.size());
  const size_t end = begin + std::min(max_count, all.size() - begin);
  return std::vector<SubjectOutcome>(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                     all.begin() + static_cast<std::ptrdiff_t>(end));
}

absl::StatusOr<SubjectSummaryText> SubjectForgetter::Summary(const std::string& job_id,
                                                             const std::string& tenant) const {
  audit::Sha256Digest leaf_hash{};
  SubjectSummaryText text;
  {
    MutexLock lock(&mutex_);
    LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, FindDone(job_id, tenant));
    leaf_hash = job->job.summary_leaf;
    LETHE_ASSIGN_OR_RETURN(text.opening, audit::WriteSubjectOpening(OpeningOf(job->job)));
  }
  const audit::AuditLog& log = *tools_.trail->log;
  const auto read = [&]() -> absl::Status {
    LETHE_ASSIGN_OR_RETURN(text.leaf_index, log.FindLeaf(leaf_hash));
    LETHE_ASSIGN_OR_RETURN(text.envelope, log.Body(leaf_hash));
    LETHE_ASSIGN_OR_RETURN(text.log_proof, log.ProofFile(text.leaf_index));
    return absl::OkStatus();
  };
  if (const absl::Status status = read(); !status.ok()) {
    return WithDefaultReason(status, "AUDIT_LOG");
  }
  return text;
}

std::set<audit::Sha256Digest> SubjectForgetter::SummaryLeaves(const std::string& tenant) const {
  std::set<audit::Sha256Digest> leaves;
  MutexLock lock(&mutex_);
  for (const std::shared_ptr<Job>& job : jobs_) {
    if (job->job.tenant == tenant && job->job.stage == JobStage::kDone) {
      leaves.insert(job->job.summary_leaf);
    }
  }
  return leaves;
}

absl::Status SubjectForgetter::Delete(const std::string& job_id, const std::string& tenant) {
  MutexLock lock(&mutex_);
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, FindDone(job_id, tenant));
  LETHE_RETURN_IF_ERROR(WithStoreReason(job->rows.Remove()));
  jobs_.erase(std::find(jobs_.begin(), jobs_.end(), job));
  return absl::OkStatus();
}

}  // namespace lethe
