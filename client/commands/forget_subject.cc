// lethe forget-subject.
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands/certificate_files.h"
#include "client/commands/commands.h"
#include "client/commands/derived_policy.h"
#include "client/commands/nonce.h"
#include "client/commands/proto_json.h"
#include "client/commands/report.h"
#include "client/commands/request_parts.h"
#include "client/commands/subject_job.h"
#include "client/commands/subject_label.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

struct SubjectOptions {
  v1::ForgetSubjectRequest request;
  std::optional<std::string> label;
  std::string label_file;
  std::string nonce_hex;
  std::string directory;
  bool wait = false;
};

void PrintPlan(Context& context, const v1::SubjectPlan& plan) {
  if (context.json()) {
    context.PrintJson(MessageToJson(plan));
    return;
  }
  context.out() << "Would forget " << FormatCount(plan.num_inputs(), "input") << " in "
                << FormatCount(plan.num_sessions() - plan.num_failed(), "session") << " of "
                << plan.num_examined() << ".\n";
  if (plan.num_failed() > 0) {
    context.out() << FormatCount(plan.num_failed(), "session")
                  << " would refuse: derived tokens under --derived fail.\n";
  }
  context.out() << "Nothing was changed (--dry-run).\n" << std::flush;
}

absl::Status ForgetSubject(Context& context, SubjectOptions& options) {
  LETHE_ASSIGN_OR_RETURN(*options.request.mutable_subject(),
                         ReadLabel(options.label, options.label_file, context));
  LETHE_ASSIGN_OR_RETURN(*options.request.mutable_nonce(), ParseNonce(options.nonce_hex));
  if (!options.request.validate_only()) EnsureRequestId(options.request.mutable_request_id());
  if (!options.directory.empty()) LETHE_RETURN_IF_ERROR(PrepareDirectory(options.directory));
  LETHE_ASSIGN_OR_RETURN(Client * client, context.client());
  LETHE_ASSIGN_OR_RETURN(const v1::ForgetSubjectResponse started,
                         client->ForgetSubject(options.request));
  if (started.has_plan()) {
    PrintPlan(context, started.plan());
    return absl::OkStatus();
  }
  const bool wait = options.wait || !options.directory.empty();
  // Said before the wait, which may end without its answer.
  if (wait) context.err() << "lethe: job " << OneLine(started.job().job_id()) << "\n" << std::flush;
  LETHE_ASSIGN_OR_RETURN(const v1::GetSubjectJobResponse response,
                         FinishJob(context, {started.job().job_id(), wait, options.directory}));
  if (context.json()) {
    context.PrintJson(MessageToJson(response.job()));
  } else {
    PrintJob(context, response.job());
    if (!wait) {
      context.out() << "It goes on by itself: lethe jobs get " << OneLine(response.job().job_id())
                    << " --wait --out DIR\n"
                    << std::flush;
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddForgetSubjectCommand(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand(
      "forget-subject",
      "Forget a subject label in every session: a job that survives the server's end");
  const auto options = std::make_shared<SubjectOptions>();
  command->add_option("LABEL", options->label, "The subject label");
  command->add_option("--label-file", options->label_file,
                      "File with the label, - for standard input: keeps it off the command line");
  AddDerivedPolicy(
      *command, "leave that session as it is, and report it",
      [options](v1::DerivedPolicy policy) { options->request.set_derived_policy(policy); });
  command->add_flag_callback(
      "--dry-run", [options] { options->request.set_validate_only(true); },
      "Count what would go; change nothing");
  command->add_flag("--wait", options->wait, "Return when the job is done");
  command->add_option(
      "--out", options->directory,
      "Wait, and keep the summary and the sessions' certificates in this directory");
  command->add_option("--nonce", options->nonce_hex,
                      "16 to 32 bytes in hex, echoed in every signed statement");
  command->add_option("--request-id", *options->request.mutable_request_id(),
                      "A repeat with the same id finds the same job (default: drawn at random)");
  command->footer(
      "Example: lethe forget-subject --label-file label.txt --derived forget --out forgotten");
  command->callback([&context, options] { context.Finish(ForgetSubject(context, *options)); });
}

}  // namespace lethe::client
