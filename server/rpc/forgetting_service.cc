#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/status_macros.h"
#include "lethe/v1/forgetting.grpc.pb.h"
#include "server/certification/forgetter.h"
#include "server/error/error_info.h"
#include "server/rpc/grpc_call.h"
#include "server/rpc/message_conversion.h"
#include "server/rpc/services.h"
#include "server/rpc/validation.h"

namespace lethe {
namespace {

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

absl::StatusOr<DerivedPolicy> ReadPolicy(v1::DerivedPolicy policy) {
  switch (policy) {
    case v1::DERIVED_POLICY_KEEP_AND_REPORT:
      return DerivedPolicy::kKeepAndReport;
    case v1::DERIVED_POLICY_FORGET_DERIVED:
      return DerivedPolicy::kForgetDerived;
    case v1::DERIVED_POLICY_FAIL:
      return DerivedPolicy::kFail;
    default:
      return InvalidFieldError("derived_policy", "KEEP_AND_REPORT, FORGET_DERIVED or FAIL");
  }
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
    return Serve("Forget", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto entry, FindSession(*core_, request->session_id()));
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
      SetReceipt(entry->session_id, receipt, response);
      return absl::OkStatus();
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
