#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "lethe/v1/memory.grpc.pb.h"
#include "server/certification/partition.h"
#include "server/certification/selection.h"
#include "server/error/error_info.h"
#include "server/rpc/disclosed_answer.h"
#include "server/rpc/grpc_call.h"
#include "server/rpc/message_conversion.h"
#include "server/rpc/services.h"
#include "server/rpc/validation.h"
#include "server/rpc/vector_conversion.h"
#include "server/session_registry/page_token.h"
#include "server/vector_session/vector_commands.h"

namespace lethe {
namespace {

// 64 MiB of an answer, however wide the values.
constexpr int64_t kReadoutNumbersMax = int64_t{1} << 23;

absl::Status CheckNumReads(const v1::Matrix& queries, int64_t value_dim) {
  if (queries.num_rows() * value_dim <= kReadoutNumbersMax) return absl::OkStatus();
  return InvalidFieldError("queries.num_rows", absl::StrCat("1 to ", kReadoutNumbersMax / value_dim,
                                                            " for values of this width"));
}

// The vector session of a syntactically valid id.
absl::StatusOr<std::shared_ptr<SessionEntry>> FindVectors(const ServerCore& core, const Call& call,
                                                          const std::string& session_id) {
  LETHE_ASSIGN_OR_RETURN(auto entry, FindSession(core, call, session_id));
  LETHE_RETURN_IF_ERROR(entry->CheckHasVectors());
  return entry;
}

class MemoryService final : public v1::MemoryService::Service {
 public:
  explicit MemoryService(ServerCore* core) : core_(core) {}

  grpc::Status CreateVectorSession(grpc::ServerContext* context,
                                   const v1::CreateVectorSessionRequest* request,
                                   v1::CreateVectorSessionResponse* response) override {
    return Serve("CreateVectorSession", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_RETURN_IF_ERROR(CheckRequestId(request->request_id()));
      LETHE_RETURN_IF_ERROR(CheckLabel("display_name", request->display_name()));
      NewSession wanted;
      LETHE_ASSIGN_OR_RETURN(wanted.vectors, ReadVectorOptions(request->options()));
      wanted.vectors.max_inputs = core_->max_vectors;
      wanted.display_name = request->display_name();
      wanted.tenant = call.principal().tenant;
      LETHE_ASSIGN_OR_RETURN(
          const auto entry,
          core_->sessions.Create(wanted, MakeRequestKey(*request, request->request_id())));
      SetSession(*entry, response->mutable_session());
      return absl::OkStatus();
    });
  }

  grpc::Status AppendVectors(grpc::ServerContext* context, const v1::AppendVectorsRequest* request,
                             v1::AppendVectorsResponse* response) override {
    return Serve("AppendVectors", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto entry, FindVectors(*core_, call, request->session_id()));
      const VectorOptions& options = *entry->vector_options;
      AppendVectorsCommand command;
      LETHE_ASSIGN_OR_RETURN(command.keys,
                             ReadMatrix("keys", request->keys(), options.params.key_dim));
      if (options.value_dim > 0 || request->has_values()) {
        LETHE_ASSIGN_OR_RETURN(command.values,
                               ReadMatrix("values", request->values(), options.value_dim));
        LETHE_RETURN_IF_ERROR(CheckIntegerRange("values.num_rows", request->values().num_rows(),
                                                request->keys().num_rows(),
                                                request->keys().num_rows()));
      }
      LETHE_RETURN_IF_ERROR(CheckLabel("subject", request->subject()));
      LETHE_RETURN_IF_ERROR(CheckRequestId(request->request_id()));
      command.subject = request->subject();
      command.request = MakeRequestKey(*request, request->request_id());
      LETHE_ASSIGN_OR_RETURN(const AppendReceipt receipt,
                             lethe::AppendVectors(command, call, &core_->scheduler, entry));
      core_->metrics->num_input_vectors +=
          static_cast<int64_t>(receipt.token_ids.end - receipt.token_ids.first);
      SetRange(receipt.token_ids, response->mutable_token_ids());
      response->set_num_inputs(receipt.num_inputs);
      return absl::OkStatus();
    });
  }

  grpc::Status Read(grpc::ServerContext* context, const v1::ReadRequest* request,
                    v1::ReadResponse* response) override {
    return Serve("Read", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto entry, FindVectors(*core_, call, request->session_id()));
      const VectorOptions& options = *entry->vector_options;
      LETHE_ASSIGN_OR_RETURN(const absl::Span<const double> queries,
                             ReadMatrix("queries", request->queries(), options.params.key_dim));
      LETHE_RETURN_IF_ERROR(CheckNumReads(request->queries(), options.value_dim));
      LETHE_ASSIGN_OR_RETURN(const VectorReads reads,
                             ReadVectors(queries, call, &core_->scheduler, entry));
      response->mutable_decisions()->Add(reads.decisions.begin(), reads.decisions.end());
      if (options.value_dim > 0) {
        SetMatrix(reads.readouts, options.value_dim, response->mutable_readouts());
      }
      return absl::OkStatus();
    });
  }

  grpc::Status Partition(grpc::ServerContext* context, const v1::PartitionRequest* request,
                         v1::PartitionResponse* response) override {
    return Serve("Partition", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto entry, FindVectors(*core_, call, request->session_id()));
      PartitionQuery query{"", 0, request->page_token()};
      LETHE_ASSIGN_OR_RETURN(query.page_size, PageSize(request->page_size(), 1000, 65536));
      LETHE_ASSIGN_OR_RETURN(const PartitionPage page,
                             lethe::ListPartition(query, call, &core_->scheduler, entry));
      for (const PartitionEntry& row : page.rows) SetPartitionRow(row, response->add_rows());
      response->set_next_page_token(page.next_page_token);
      response->set_rho(page.rho);
      response->set_mass(page.mass);
      return absl::OkStatus();
    });
  }

  grpc::Status ListVectors(grpc::ServerContext* context, const v1::ListVectorsRequest* request,
                           v1::ListVectorsResponse* response) override {
    return Serve("ListVectors", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto entry, FindVectors(*core_, call, request->session_id()));
      LETHE_ASSIGN_OR_RETURN(const int64_t size, PageSize(request->page_size(), 1000, 65536));
      LETHE_ASSIGN_OR_RETURN(const VectorPage page,
                             lethe::ListVectors(size, request->page_token(), entry));
      for (const ListedVector& row : page.rows) {
        v1::VectorRow* added = response->add_rows();
        added->set_token_id(row.token_id);
        added->set_subject(row.subject);
        added->mutable_key()->Add(row.key.begin(), row.key.end());
        added->mutable_value()->Add(row.value.begin(), row.value.end());
      }
      response->set_next_page_token(page.next_page_token);
      return KeepIfDisclosed(call, *core_, entry.get(), response);
    });
  }

  grpc::Status EvictReserve(grpc::ServerContext* context, const v1::EvictReserveRequest* request,
                            v1::EvictReserveResponse* response) override {
    return ServeErasing("EvictReserve", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto entry, FindVectors(*core_, call, request->session_id()));
      LETHE_RETURN_IF_ERROR(CheckNonce(request->nonce()));
      LETHE_RETURN_IF_ERROR(CheckRequestId(request->request_id()));
      const EvictCommand command{request->certified_seq(), request->nonce(),
                                 MakeRequestKey(*request, request->request_id())};
      LETHE_ASSIGN_OR_RETURN(
          const EvictReceipt receipt,
          lethe::EvictReserve(command, call, &core_->scheduler, core_->trail, entry));
      SetRanges(receipt.evicted, response->mutable_evicted());
      response->set_num_evicted(receipt.num_evicted);
      response->set_num_inputs(receipt.num_inputs);
      response->set_epoch(receipt.epoch);
      if (receipt.digest_after) {
        SetDigest(*receipt.digest_after, {}, response->mutable_digest_after());
      }
      SetCertificateRef(entry->session_id, receipt.record, response->mutable_certificate());
      response->set_repeated_request(receipt.repeated_request);
      return absl::OkStatus();
    });
  }

 private:
  ServerCore* const core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeMemoryService(ServerCore* core) {
  return std::make_unique<MemoryService>(core);
}

}  // namespace lethe
