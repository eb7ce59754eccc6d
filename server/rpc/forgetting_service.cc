#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "lethe/v1/forgetting.grpc.pb.h"
#include "server/certification/forgetter.h"
#include "server/error/error_info.h"
#include "server/rpc/grpc_call.h"
#include "server/rpc/message_conversion.h"
#include "server/rpc/services.h"
#include "server/rpc/subject_conversion.h"
#include "server/rpc/validation.h"
#include "server/session_registry/page_token.h"

namespace lethe {
namespace {

// A watcher hears of a job at most once in this time, and looks whether its client is gone at least once a second.
constexpr std::chrono::milliseconds kWatchPause{100};
constexpr std::chrono::seconds kWatchLook{1};

absl::StatusOr<ForgetSelector> ReadTokens(const v1::TokenSelection& tokens) {
  const size_t count =
      static_cast<size_t>(tokens.token_ids_size()) + static_cast<size_t>(tokens.ranges_size());
  if (count == 0 || count > kSelectedIdsMax) {
    return InvalidFieldError("selection.tokens", "1 to 65536 token_ids and ranges in all");
  }
  ForgetSelector selector;
  selector.token_ids.assign(tokens.token_ids().begin(), tokens.token_ids().end());
  for (const v1::TokenRange& range : tokens.ranges()) {
    if (range.first() >= range.end()) {
      return InvalidFieldError("selection.tokens.ranges", "end greater than first");
    }
    selector.ranges.push_back({range.first(), range.end()});
  }
  return selector;
}

absl::StatusOr<ForgetSelector> ReadSelection(const v1::ForgetSelection& selection) {
  switch (selection.selection_case()) {
    case v1::ForgetSelection::kTokens:
      return ReadTokens(selection.tokens());
    case v1::ForgetSelection::kSubject:
      if (selection.subject().empty() || selection.subject().size() > kLabelBytesMax) {
        return InvalidFieldError("selection.subject", "1 to 128 bytes of UTF-8");
      }
      return ForgetSelector::Subject(selection.subject());
    case v1::ForgetSelection::kBeforeTokenId:
      return ForgetSelector::Before(selection.before_token_id());
    case v1::ForgetSelection::kEverything:
      if (!selection.everything()) return InvalidFieldError("selection.everything", "true");
      return ForgetSelector::Everything();
    case v1::ForgetSelection::SELECTION_NOT_SET:
      break;
  }
  return InvalidFieldError("selection", "one of tokens, subject, before_token_id, everything");
}

absl::StatusOr<std::optional<ForgetWay>> ReadWay(v1::ForgetWay way) {
  switch (way) {
    case v1::FORGET_WAY_UNSPECIFIED:
      return std::nullopt;
    case v1::FORGET_WAY_REEVALUATION:
      return ForgetWay::kReevaluation;
    default:
      return InvalidFieldError("way", "FORGET_WAY_REEVALUATION, or left out");
  }
}

void SetReceipt(const std::string& session_id, const ForgetReceipt& receipt,
                v1::ForgetResponse* response) {
  SetRanges(receipt.forgotten, response->mutable_forgotten());
  SetRanges(receipt.derived_kept, response->mutable_derived_kept());
  SetRanges(receipt.derived_forgotten, response->mutable_derived_forgotten());
  response->set_num_forgotten(receipt.num_forgotten);
  response->set_first_rank(receipt.first_rank);
  response->set_num_inputs(receipt.num_inputs);
  response->set_num_reevaluated(receipt.num_reevaluated);
  response->set_num_local_reevaluated(receipt.num_local_reevaluated);
  response->set_num_replayed(receipt.num_replayed);
  response->set_num_snapshots_destroyed(receipt.num_snapshots_destroyed);
  response->set_duration_us(receipt.duration_us);
  response->set_repeated_request(receipt.repeated_request);
  for (const GroupMethod& method : receipt.methods) {
    v1::GroupMethod* added = response->add_methods();
    added->set_group(method.group);
    added->set_method(std::string(audit::LayerMethodName(method.method)));
    added->set_influence(method.bounded ? "bounded" : "contextual");
  }
  if (receipt.digest_after) SetDigest(*receipt.digest_after, {}, response->mutable_digest_after());
  if (receipt.record) {
    SetCertificateRef(session_id, *receipt.record, response->mutable_certificate());
  }
}

class ForgettingService final : public v1::ForgettingService::Service {
 public:
  explicit ForgettingService(ServerCore* core) : core_(core) {}

  grpc::Status Forget(grpc::ServerContext* context, const v1::ForgetRequest* request,
                      v1::ForgetResponse* response) override {
    return ServeErasing("Forget", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto entry, FindSession(*core_, call, request->session_id()));
      ForgetCommand command;
      LETHE_ASSIGN_OR_RETURN(command.selector, ReadSelection(request->selection()));
      LETHE_ASSIGN_OR_RETURN(command.policy, ReadPolicy(request->derived_policy()));
      LETHE_ASSIGN_OR_RETURN(command.way, ReadWay(request->way()));
      LETHE_RETURN_IF_ERROR(CheckNonce(request->nonce()));
      LETHE_RETURN_IF_ERROR(CheckRequestId(request->request_id()));
      command.validate_only = request->validate_only();
      command.nonce = request->nonce();
      command.request = MakeRequestKey(*request, request->request_id());
      LETHE_ASSIGN_OR_RETURN(const ForgetReceipt receipt,
                             ForgetInputs(command, call, &core_->scheduler, core_->trail, entry));
      if (!receipt.repeated_request && !command.validate_only) {
        ++core_->metrics->num_forgets;
        core_->metrics->num_forgotten_inputs += receipt.num_forgotten;
      }
      SetReceipt(entry->session_id, receipt, response);
      return absl::OkStatus();
    });
  }

  grpc::Status ForgetSubject(grpc::ServerContext* context, const v1::ForgetSubjectRequest* request,
                             v1::ForgetSubjectResponse* response) override {
    return Serve("ForgetSubject", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(SubjectCommand command, ReadSubjectCommand(*request));
      command.tenant = call.principal().tenant;
      if (request->validate_only()) {
        LETHE_ASSIGN_OR_RETURN(const SubjectPlan plan, core_->subjects.Plan(command, call));
        SetSubjectPlan(plan, response->mutable_plan());
        return absl::OkStatus();
      }
      LETHE_ASSIGN_OR_RETURN(const SubjectProgress job, core_->subjects.Start(command));
      SetSubjectJob(job, response->mutable_job());
      return absl::OkStatus();
    });
  }

  grpc::Status GetSubjectJob(grpc::ServerContext* context, const v1::GetSubjectJobRequest* request,
                             v1::GetSubjectJobResponse* response) override {
    return Serve("GetSubjectJob", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_RETURN_IF_ERROR(CheckJobId(request->job_id()));
      const std::string& tenant = call.principal().tenant;
      LETHE_ASSIGN_OR_RETURN(const SubjectProgress job,
                             core_->subjects.Find(request->job_id(), tenant));
      SetSubjectJob(job, response->mutable_job());
      if (job.stage != JobStage::kDone) return absl::OkStatus();
      LETHE_ASSIGN_OR_RETURN(const SubjectSummaryText summary,
                             core_->subjects.Summary(request->job_id(), tenant));
      SetSubjectSummary(summary, response->mutable_summary());
      if (!call.principal().Has(Role::kEraser)) response->mutable_summary()->clear_opening();
      return absl::OkStatus();
    });
  }

  grpc::Status WatchSubjectJob(grpc::ServerContext* context,
                               const v1::WatchSubjectJobRequest* request,
                               grpc::ServerWriter<v1::WatchSubjectJobResponse>* writer) override {
    return Serve("WatchSubjectJob", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_RETURN_IF_ERROR(CheckJobId(request->job_id()));
      const std::string& tenant = call.principal().tenant;
      LETHE_ASSIGN_OR_RETURN(SubjectProgress job, core_->subjects.Find(request->job_id(), tenant));
      while (true) {
        v1::WatchSubjectJobResponse response;
        SetSubjectJob(job, response.mutable_job());
        if (!writer->Write(response)) return absl::CancelledError("the client went away");
        if (job.stage == JobStage::kDone) return absl::OkStatus();
        std::this_thread::sleep_for(kWatchPause);
        const uint64_t seen = job.version;
        while (job.version == seen) {
          LETHE_RETURN_IF_ERROR(call.Check());
          if (core_->draining) {
            return WithErrorInfo(absl::UnavailableError("the server is shutting down"),
                                 {"SHUTTING_DOWN", {}});
          }
          LETHE_ASSIGN_OR_RETURN(
              job, core_->subjects.Wait(request->job_id(), seen,
                                        std::chrono::steady_clock::now() + kWatchLook, tenant));
        }
      }
    });
  }

  grpc::Status ListSubjectJobs(grpc::ServerContext* context,
                               const v1::ListSubjectJobsRequest* request,
                               v1::ListSubjectJobsResponse* response) override {
    return Serve("ListSubjectJobs", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const int64_t size, PageSize(request->page_size(), 100, 1000));
      // The token is the last id of the page before.
      LETHE_RETURN_IF_ERROR(CheckSessionPageToken(request->page_token()));
      auto page = core_->subjects.List(request->page_token(), static_cast<size_t>(size) + 1,
                                       call.principal().tenant);
      const bool more = page.size() > static_cast<size_t>(size);
      if (more) page.pop_back();
      for (const SubjectProgress& job : page) SetSubjectJob(job, response->add_jobs());
      if (more) response->set_next_page_token(page.back().job_id);
      return absl::OkStatus();
    });
  }

  grpc::Status ListSubjectOutcomes(grpc::ServerContext* context,
                                   const v1::ListSubjectOutcomesRequest* request,
                                   v1::ListSubjectOutcomesResponse* response) override {
    return Serve("ListSubjectOutcomes", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_RETURN_IF_ERROR(CheckJobId(request->job_id()));
      LETHE_ASSIGN_OR_RETURN(const int64_t size, PageSize(request->page_size(), 1000, 10'000));
      const std::string scope =
          absl::StrCat("ListSubjectOutcomes ", call.principal().tenant, " ", request->job_id());
      PageToken token;
      if (!request->page_token().empty()) {
        LETHE_ASSIGN_OR_RETURN(token, ParsePageToken(scope, request->page_token()));
      }
      LETHE_ASSIGN_OR_RETURN(
          std::vector<SubjectOutcome> page,
          core_->subjects.Outcomes(request->job_id(), token.position, static_cast<size_t>(size) + 1,
                                   call.principal().tenant));
      const bool more = page.size() > static_cast<size_t>(size);
      if (more) page.pop_back();
      for (const SubjectOutcome& outcome : page) {
        SetSubjectOutcome(outcome, response->add_outcomes());
      }
      const uint64_t end = token.position + page.size();
      if (more) response->set_next_page_token(WritePageToken(scope, {0, 0, end}));
      return absl::OkStatus();
    });
  }

  grpc::Status DeleteSubjectJob(grpc::ServerContext* context,
                                const v1::DeleteSubjectJobRequest* request,
                                v1::DeleteSubjectJobResponse* /*response*/) override {
    return Serve("DeleteSubjectJob", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_RETURN_IF_ERROR(CheckJobId(request->job_id()));
      return core_->subjects.Delete(request->job_id(), call.principal().tenant);
    });
  }

 private:
  ServerCore* const core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeForgettingService(ServerCore* core) {
  return std::make_unique<ForgettingService>(core);
}

}  // namespace lethe
