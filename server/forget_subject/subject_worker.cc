#include "server/forget_subject/subject_worker.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "kernels/base/wall_clock.h"
#include "server/certification/removal.h"
#include "server/diagnostics/log.h"
#include "server/error/error_info.h"
#include "server/session_registry/durable_entry.h"
#include "server/wiping/dead_stacks.h"

namespace lethe {
namespace {

// Sessions taken from the registry at once, and between two looks that others get at the count.
constexpr size_t kPageSessions = 64;

absl::Status Examine(const PassTools& tools, const Call& call, const JobAtWork& work) {
  std::vector<std::string> plan;
  int64_t num_examined = 0;
  std::string after;
  while (true) {
    const auto page = tools.sessions->List(work.job->tenant, after, kPageSessions);
    if (page.empty()) break;
    for (const std::shared_ptr<SessionEntry>& entry : page) {
      LETHE_RETURN_IF_ERROR(call.Check());
      const absl::StatusOr<bool> holds =
          ExamineSession(work.job->label, call, tools.scheduler, entry);
      // What cannot be read may hold it: its Forget says what is wrong.
      if (!holds.ok() && !absl::IsDataLoss(holds.status())) return holds.status();
      ++num_examined;
      if (!holds.ok() || *holds) plan.push_back(entry->session_id);
    }
    after = page.back()->session_id;
    work.change([&](SubjectJob* job) { job->num_examined = num_examined; });
  }
  SubjectJob planned = *work.job;
  planned.num_examined = num_examined;
  planned.num_unserved = work.num_unserved;
  planned.plan = plan;
  LETHE_RETURN_IF_ERROR(WithStoreReason(work.rows->Add(EncodePlan(planned), Durability::kSynced)));
  LogInfo(absl::StrCat("subject job ", planned.job_id, ": ", plan.size(), " of ", num_examined,
                       " sessions hold the label"));
  work.change([&](SubjectJob* job) {
    job->num_unserved = work.num_unserved;
    job->plan = std::move(plan);
    job->stage = JobStage::kForgetting;
  });
  return absl::OkStatus();
}

absl::Status ForgetNext(const PassTools& tools, const Call& call, const JobAtWork& work) {
  LETHE_RETURN_IF_ERROR(call.Check());
  const std::string& session_id = work.job->plan[work.job->outcomes.size()];
  LETHE_ASSIGN_OR_RETURN(const SubjectOutcome outcome,
                         ForgetInSession(*work.job, session_id, call, tools));
  // No sync of its own: after a loss of power the session's record tells the same.
  LETHE_RETURN_IF_ERROR(
      WithStoreReason(work.rows->Add(EncodeOutcome(outcome), Durability::kHandedOver)));
  work.change([&](SubjectJob* job) { job->outcomes.push_back(outcome); });
  return absl::OkStatus();
}

absl::Status Conclude(const PassTools& tools, const JobAtWork& work) {
  audit::SubjectSummary summary = SummaryOf(*work.job);
  summary.issued_at = Rfc3339Now();
  summary.binary = tools.trail->binary;
  summary.build = tools.trail->build;
  summary.algorithm = kForgetAlgorithm;
  SubjectJob done = *work.job;
  done.DropLabel();
  done.plan.clear();
  done.end_us = NowMicros();
  done.stage = JobStage::kDone;
  const absl::StatusOr<audit::FinishedSummary> record = tools.trail->recorder->RecordSummary(
      std::move(summary), [&](const audit::Sha256Digest& leaf_hash) {
        done.summary_leaf = leaf_hash;
        return WithStoreReason(work.rows->Prepare(EncodeDone(done), leaf_hash));
      });
  if (!record.ok()) {
    if (work.rows->is_prepared()) {
      // What this says, the store says to everybody from now on.
      work.rows->Undo(IsRecorded(*tools.trail, done.summary_leaf)).IgnoreError();
    }
    return WithDefaultReason(record.status(), "AUDIT_LOG");
  }
  // If this fails, the record stands, and the next start erases the label.
  LETHE_RETURN_IF_ERROR(WithStoreReason(work.rows->Finish()));
  tools.sessions->fence()->Open(work.job->tenant, work.job->label);
  // The label and what was forgotten are in returned functions' frames too: no end is told before that is gone.
  if (const absl::Status wiped = WipeDeadStacks(); !wiped.ok()) return work.rows->GiveUp(wiped);
  LogInfo(absl::StrCat("subject job ", done.job_id, ": done, its summary is leaf ",
                       record->leaf_index, " of the audit log"));
  work.change([&](SubjectJob* job) {
    job->DropLabel();
    *job = done;
  });
  return absl::OkStatus();
}

}  // namespace

absl::Status RunSubjectJob(const PassTools& tools, const Call& call, const JobAtWork& work) {
  if (work.job->stage == JobStage::kExamining) LETHE_RETURN_IF_ERROR(Examine(tools, call, work));
  if (work.job->stage != JobStage::kForgetting) return absl::OkStatus();
  while (work.job->outcomes.size() < work.job->plan.size()) {
    LETHE_RETURN_IF_ERROR(ForgetNext(tools, call, work));
  }
  return Conclude(tools, work);
}

}  // namespace lethe
