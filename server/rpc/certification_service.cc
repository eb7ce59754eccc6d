#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "lethe/v1/certification.grpc.pb.h"
#include "server/certification/certifier.h"
#include "server/certification/partition.h"
#include "server/error/error_info.h"
#include "server/identity/credentials.h"
#include "server/rpc/disclosed_answer.h"
#include "server/rpc/grpc_call.h"
#include "server/rpc/message_conversion.h"
#include "server/rpc/services.h"
#include "server/rpc/validation.h"
#include "server/session_registry/page_token.h"

namespace lethe {
namespace {

void SetHead(const HeadReport& report, v1::HeadBounds* message) {
  message->set_head(report.head);
  message->set_num_keys(report.num_keys);
  message->set_num_margin(report.num_margin);
  message->set_num_error(report.num_error);
  message->set_num_reserve(report.num_reserve);
  message->set_partition_proved(report.partition_proved);
  if (!report.bounds.has_value()) return;
  message->set_gap(report.bounds->gap);
  message->set_kernel_sum_bound(report.bounds->kernel_sum_bound);
  message->set_alpha_bound(report.bounds->alpha_bound);
  message->set_rho_bound(report.bounds->rho_bound);
  message->set_decision_bound(report.bounds->decision_bound);
  message->set_smallest_margin(report.bounds->smallest_margin);
  if (!report.bounds->partition_proved) return;
  message->set_weight_ratio_bound(report.bounds->weight_ratio_bound);
  message->set_readout_bound(report.bounds->readout_bound);
}

class CertificationService final : public v1::CertificationService::Service {
 public:
  explicit CertificationService(ServerCore* core) : core_(core) {}

  grpc::Status Certify(grpc::ServerContext* context, const v1::CertifyRequest* request,
                       v1::CertifyResponse* response) override {
    return Serve("Certify", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto entry, FindSession(*core_, call, request->session_id()));
      LETHE_RETURN_IF_ERROR(CheckNonce(request->nonce()));
      LETHE_RETURN_IF_ERROR(CheckRequestId(request->request_id()));
      if (!request->disclose_to().empty() && !IsCredentialName(request->disclose_to())) {
        return InvalidFieldError("disclose_to", kAcceptedCredentialName);
      }
      const CertifyCommand command{request->nonce(), request->include_bundle(),
                                   MakeRequestKey(*request, request->request_id()),
                                   request->disclose_to()};
      LETHE_ASSIGN_OR_RETURN(CertifyReceipt receipt,
                             lethe::Certify(command, call, &core_->scheduler, core_->trail, entry));
      SetCertificate(entry->session_id, receipt.certificate, response->mutable_certificate());
      for (const HeadReport& head : receipt.heads) SetHead(head, response->add_heads());
      if (receipt.digest) SetDigest(*receipt.digest, receipt.parts, response->mutable_digest());
      response->set_bundle(std::move(receipt.bundle));
      return absl::OkStatus();
    });
  }

  grpc::Status ListPartition(grpc::ServerContext* context, const v1::ListPartitionRequest* request,
                             v1::ListPartitionResponse* response) override {
    return Serve("ListPartition", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto entry, FindSession(*core_, call, request->session_id()));
      PartitionQuery query{request->head(), 0, request->page_token()};
      LETHE_ASSIGN_OR_RETURN(query.page_size, PageSize(request->page_size(), 1000, 65536));
      if (query.head.size() > kHeadNameBytesMax) {
        return InvalidFieldError("head", "the name of a head, as Certify gives it, or empty");
      }
      LETHE_ASSIGN_OR_RETURN(const PartitionPage page,
                             lethe::ListPartition(query, call, &core_->scheduler, entry));
      for (const PartitionEntry& row : page.rows) {
        SetPartitionRow(row, response->add_rows());
      }
      response->set_next_page_token(page.next_page_token);
      response->set_head(page.head);
      response->set_rho(page.rho);
      response->set_mass(page.mass);
      return absl::OkStatus();
    });
  }

  grpc::Status GetCertificate(grpc::ServerContext* context,
                              const v1::GetCertificateRequest* request,
                              v1::GetCertificateResponse* response) override {
    return Serve("GetCertificate", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto entry, FindSession(*core_, call, request->session_id()));
      LETHE_ASSIGN_OR_RETURN(FetchedCertificate fetched,
                             lethe::GetCertificate(request->seq(), request->include_bundle(), call,
                                                   &core_->scheduler, core_->trail, entry));
      // With its bundle the record is the present state's, and its opening opens nothing else.
      if (!call.principal().Has(Role::kUser) && !request->include_bundle()) {
        fetched.certificate.opening.clear();
      }
      SetCertificate(entry->session_id, fetched.certificate, response->mutable_certificate());
      response->set_bundle(std::move(fetched.bundle));
      return request->include_bundle() ? KeepIfDisclosed(call, *core_, entry.get(), response)
                                       : absl::OkStatus();
    });
  }

 private:
  ServerCore* const core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeCertificationService(ServerCore* core) {
  return std::make_unique<CertificationService>(core);
}

}  // namespace lethe
