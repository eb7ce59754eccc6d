#include "client/commands/subject_job.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/commands/certificate_files.h"
#include "client/commands/progress.h"
#include "client/commands/proto_json.h"
#include "client/commands/report.h"
#include "client/commands/subject_files.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

absl::Status WaitForJob(Context& context, Client& client, const std::string& job_id) {
  Progress progress(context.io(), "forgetting in every session");
  v1::WatchSubjectJobRequest request;
  request.set_job_id(job_id);
  return client.WatchSubjectJob(request, [&](const v1::WatchSubjectJobResponse& event) {
    const v1::SubjectJob& job = event.job();
    progress.Update(job.state() == v1::SUBJECT_JOB_STATE_EXAMINING
                        ? absl::StrCat(job.num_examined(), " looked at")
                        : absl::StrCat(job.num_forgotten(), " of ", job.num_sessions(),
                                       job.waiting_reason().empty() ? "" : ", waiting: ",
                                       job.waiting_reason()));
  });
}

absl::Status KeepCertificates(Context& context, Client& client, const FinishOptions& options) {
  LETHE_ASSIGN_OR_RETURN(const std::vector<v1::SubjectOutcome> outcomes,
                         ListAllOutcomes(client, options.job_id));
  int64_t num_gone = 0;
  for (const v1::SubjectOutcome& outcome : outcomes) {
    if (outcome.kind() != v1::SUBJECT_OUTCOME_KIND_FORGOTTEN) continue;
    v1::GetCertificateRequest request;
    request.set_session_id(outcome.session_id());
    request.set_seq(outcome.seq());
    const absl::StatusOr<v1::GetCertificateResponse> response = client.GetCertificate(request);
    if (absl::IsNotFound(response.status())) {
      ++num_gone;
      continue;
    }
    LETHE_RETURN_IF_ERROR(response.status());
    LETHE_RETURN_IF_ERROR(
        WriteSessionCertificate(options.directory, outcome.session_id(), response->certificate()));
  }
  if (num_gone > 0) {
    context.err() << "lethe: " << FormatCount(num_gone, "session")
                  << " was deleted since; its certificate cannot be fetched any more\n"
                  << std::flush;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::GetSubjectJobResponse> FinishJob(Context& context,
                                                    const FinishOptions& options) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  if (options.wait) LETHE_RETURN_IF_ERROR(WaitForJob(context, *client, options.job_id));
  v1::GetSubjectJobRequest request;
  request.set_job_id(options.job_id);
  LETHE_ASSIGN_OR_RETURN(v1::GetSubjectJobResponse response, client->GetSubjectJob(request));
  if (options.directory.empty()) return response;
  if (!response.has_summary()) {
    return absl::InvalidArgumentError("--out: the job is not done; add --wait");
  }
  LETHE_RETURN_IF_ERROR(WriteSummary(options.directory, response.summary()));
  LETHE_RETURN_IF_ERROR(KeepCertificates(context, *client, options));
  return response;
}

absl::StatusOr<std::vector<v1::SubjectOutcome>> ListAllOutcomes(Client& client,
                                                                const std::string& job_id) {
  v1::ListSubjectOutcomesRequest request;
  request.set_job_id(job_id);
  std::vector<v1::SubjectOutcome> outcomes;
  do {
    LETHE_ASSIGN_OR_RETURN(const v1::ListSubjectOutcomesResponse page,
                           client.ListSubjectOutcomes(request));
    outcomes.insert(outcomes.end(), page.outcomes().begin(), page.outcomes().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return outcomes;
}

void PrintJob(Context& context, const v1::SubjectJob& job) {
  FieldTable table;
  table.Add("job", job.job_id());
  table.Add("state", EnumName(v1::SubjectJobState_descriptor(), job.state()));
  table.Add("sessions looked at", absl::StrCat(job.num_examined()));
  table.Add("that hold or held the label", absl::StrCat(job.num_sessions()));
  table.Add("forgotten, with a certificate", absl::StrCat(job.num_forgotten()));
  table.Add("failed, unchanged", absl::StrCat(job.num_failed()));
  table.Add("deleted by others", absl::StrCat(job.num_deleted()));
  table.Add("nothing left", absl::StrCat(job.num_nothing_left()));
  table.Add("inputs forgotten", absl::StrCat(job.num_inputs()));
  if (job.num_unserved() > 0) {
    table.Add("damaged, without names", absl::StrCat(job.num_unserved(), ", not reached"));
  }
  if (!job.waiting_reason().empty()) table.Add("waiting", job.waiting_reason());
  table.Print(context.out());
}

}  // namespace lethe::client
