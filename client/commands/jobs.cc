// lethe jobs list, get, sessions, delete.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/commands.h"
#include "client/commands/proto_json.h"
#include "client/commands/report.h"
#include "client/commands/subject_job.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

absl::Status ListJobs(Context& context) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::ListSubjectJobsRequest request;
  RowTable table({"job", "state", "sessions", "forgotten", "failed", "inputs"});
  Json jobs = Json::array();
  do {
    LETHE_ASSIGN_OR_RETURN(const v1::ListSubjectJobsResponse page,
                           client->ListSubjectJobs(request));
    for (const v1::SubjectJob& job : page.jobs()) {
      jobs.push_back(MessageToJson(job));
      table.Add({job.job_id(), EnumName(v1::SubjectJobState_descriptor(), job.state()),
                 absl::StrCat(job.num_sessions()), absl::StrCat(job.num_forgotten()),
                 absl::StrCat(job.num_failed()), absl::StrCat(job.num_inputs())});
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  if (context.json()) {
    context.PrintJson(Json{{"jobs", jobs}});
  } else if (table.num_rows() == 0) {
    context.out() << "No jobs.\n" << std::flush;
  } else {
    table.Print(context.out());
  }
  return absl::OkStatus();
}

absl::Status GetJob(Context& context, const FinishOptions& options) {
  LETHE_ASSIGN_OR_RETURN(const v1::GetSubjectJobResponse response, FinishJob(context, options));
  if (context.json()) {
    context.PrintJson(MessageToJson(response.job()));
  } else {
    PrintJob(context, response.job());
  }
  return absl::OkStatus();
}

absl::Status ListSessions(Context& context, const std::string& job_id) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const std::vector<v1::SubjectOutcome> outcomes,
                         ListAllOutcomes(*client, job_id));
  RowTable table({"session", "outcome", "reason", "seq", "inputs"});
  for (const v1::SubjectOutcome& outcome : outcomes) {
    if (context.json()) {
      context.PrintJson(MessageToJson(outcome));
      continue;
    }
    table.Add({outcome.session_id(), EnumName(v1::SubjectOutcomeKind_descriptor(), outcome.kind()),
               outcome.reason().empty() ? "-" : outcome.reason(), absl::StrCat(outcome.seq()),
               absl::StrCat(outcome.num_inputs())});
  }
  if (!context.json()) table.Print(context.out());
  return absl::OkStatus();
}

absl::Status DeleteJob(Context& context, const std::string& job_id) {
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  v1::DeleteSubjectJobRequest request;
  request.set_job_id(job_id);
  LETHE_RETURN_IF_ERROR(client->DeleteSubjectJob(request).status());
  if (context.json()) {
    context.PrintJson(Json::object());
  } else {
    context.out() << "Deleted what was kept of job " << OneLine(job_id)
                  << "; its records stay in the audit log.\n"
                  << std::flush;
  }
  return absl::OkStatus();
}

}  // namespace

void AddJobsCommands(CLI::App& app, Context& context) {
  CLI::App* jobs = app.add_subcommand("jobs", "Jobs of forget-subject: list, look at, wait for")
                       ->require_subcommand(1);
  jobs->footer("Example: lethe jobs list");
  CLI::App* list = jobs->add_subcommand("list", "The jobs of the server, the newest first");
  list->footer("Example: lethe jobs list --json");
  list->callback([&context] { context.Finish(ListJobs(context)); });

  CLI::App* get = jobs->add_subcommand("get", "How far a job is; its summary once it is done");
  const auto options = std::make_shared<FinishOptions>();
  get->add_option("JOB", options->job_id, "Job id")->required();
  get->add_flag("--wait", options->wait, "Return when the job is done");
  get->add_option("--out", options->directory,
                  "Keep the summary and the sessions' certificates in this directory");
  get->footer("Example: lethe jobs get $J --wait --out forgotten");
  get->callback([&context, options] { context.Finish(GetJob(context, *options)); });

  CLI::App* sessions =
      jobs->add_subcommand("sessions", "What became of each session that held the label");
  const auto job_id = std::make_shared<std::string>();
  sessions->add_option("JOB", *job_id, "Job id")->required();
  sessions->footer("Example: lethe jobs sessions $J");
  sessions->callback([&context, job_id] { context.Finish(ListSessions(context, *job_id)); });

  CLI::App* remove = jobs->add_subcommand(
      "delete", "Delete what is kept of a done job, the opening of its summary included");
  const auto deleted = std::make_shared<std::string>();
  remove->add_option("JOB", *deleted, "Job id")->required();
  remove->footer("Example: lethe jobs delete $J");
  remove->callback([&context, deleted] { context.Finish(DeleteJob(context, *deleted)); });
}

}  // namespace lethe::client
