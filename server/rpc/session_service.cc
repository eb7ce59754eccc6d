#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "lethe/v1/session.grpc.pb.h"
#include "server/generation/ingest.h"
#include "server/rpc/disclosed_answer.h"
#include "server/rpc/grpc_call.h"
#include "server/rpc/input_listing.h"
#include "server/rpc/message_conversion.h"
#include "server/rpc/services.h"
#include "server/rpc/transfer_calls.h"
#include "server/rpc/validation.h"
#include "server/session_registry/page_token.h"

namespace lethe {
namespace {

constexpr double kSigmaMin = 0x1.0p-20;
constexpr double kSigmaMax = 0x1.0p20;

absl::StatusOr<SessionOptions> ReadOptions(const v1::MemoryOptions& message) {
  SessionOptions options;
  if (message.has_ovq_slots()) {
    LETHE_RETURN_IF_ERROR(
        CheckIntegerRange("memory_options.ovq_slots", message.ovq_slots(), 2, 65536));
    options.memory.ovq_slots = message.ovq_slots();
  }
  if (message.has_sv_box_mass()) {
    LETHE_RETURN_IF_ERROR(
        CheckRange("memory_options.sv_box_mass", message.sv_box_mass(), 1, 0x1.0p20));
    options.memory.sv_box_mass = message.sv_box_mass();
  }
  if (message.has_sv_sigma()) {
    LETHE_RETURN_IF_ERROR(
        CheckRange("memory_options.sv_sigma", message.sv_sigma(), kSigmaMin, kSigmaMax));
    options.memory.sv_sigma = message.sv_sigma();
  }
  if (message.has_sv_ridge()) {
    LETHE_RETURN_IF_ERROR(CheckRange("memory_options.sv_ridge", message.sv_ridge(), 1e-8, 1));
    options.memory.sv_ridge = message.sv_ridge();
  }
  return options;
}

class SessionService final : public v1::SessionService::Service {
 public:
  explicit SessionService(ServerCore* core) : core_(core) {}

  grpc::Status CreateSession(grpc::ServerContext* context, const v1::CreateSessionRequest* request,
                             v1::CreateSessionResponse* response) override {
    return Serve("CreateSession", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_RETURN_IF_ERROR(CheckRequestId(request->request_id()));
      LETHE_RETURN_IF_ERROR(CheckLabel("display_name", request->display_name()));
      NewSession wanted;
      LETHE_ASSIGN_OR_RETURN(wanted.model, core_->models.Find(request->model()));
      LETHE_ASSIGN_OR_RETURN(wanted.options, ReadOptions(request->memory_options()));
      wanted.options.stored_input_bytes = core_->stored_input_bytes;
      wanted.display_name = request->display_name();
      wanted.tenant = call.principal().tenant;
      LETHE_ASSIGN_OR_RETURN(
          const auto entry,
          core_->sessions.Create(wanted, MakeRequestKey(*request, request->request_id())));
      SetSession(*entry, response->mutable_session());
      return absl::OkStatus();
    });
  }

  grpc::Status GetSession(grpc::ServerContext* context, const v1::GetSessionRequest* request,
                          v1::GetSessionResponse* response) override {
    return Serve("GetSession", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto entry, FindSession(*core_, call, request->session_id()));
      SetSession(*entry, response->mutable_session());
      return absl::OkStatus();
    });
  }

  grpc::Status ListSessions(grpc::ServerContext* context, const v1::ListSessionsRequest* request,
                            v1::ListSessionsResponse* response) override {
    return Serve("ListSessions", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const int64_t size, PageSize(request->page_size(), 100, 1000));
      // The token is the last id of the page before; that session may be gone meanwhile.
      LETHE_RETURN_IF_ERROR(CheckSessionPageToken(request->page_token()));
      auto page = core_->sessions.List(call.principal().tenant, request->page_token(),
                                       static_cast<size_t>(size) + 1);
      const bool more = page.size() > static_cast<size_t>(size);
      if (more) page.pop_back();
      for (const auto& entry : page) SetSession(*entry, response->add_sessions());
      if (more) response->set_next_page_token(page.back()->session_id);
      return absl::OkStatus();
    });
  }

  grpc::Status DeleteSession(grpc::ServerContext* context, const v1::DeleteSessionRequest* request,
                             v1::DeleteSessionResponse* response) override {
    return ServeErasing("DeleteSession", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_RETURN_IF_ERROR(CheckRequestId(request->request_id()));
      LETHE_RETURN_IF_ERROR(CheckSessionId(request->session_id()));
      LETHE_ASSIGN_OR_RETURN(
          const int64_t num_inputs,
          core_->sessions.Delete(call.principal().tenant, request->session_id(),
                                 MakeRequestKey(*request, request->request_id())));
      response->set_num_inputs(num_inputs);
      return absl::OkStatus();
    });
  }

  grpc::Status Append(grpc::ServerContext* context, const v1::AppendRequest* request,
                      v1::AppendResponse* response) override {
    return Serve("Append", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto entry, FindSession(*core_, call, request->session_id()));
      LETHE_RETURN_IF_ERROR(entry->CheckHasModel());
      AppendCommand command;
      LETHE_ASSIGN_OR_RETURN(
          command.vocab_ids,
          ReadContent("input", request->input(), *entry->model, core_->limits.prompt_tokens));
      command.history_tokens = core_->limits.history_tokens;
      LETHE_RETURN_IF_ERROR(CheckLabel("subject", request->subject()));
      LETHE_RETURN_IF_ERROR(CheckRequestId(request->request_id()));
      command.subject = request->subject();
      command.request = MakeRequestKey(*request, request->request_id());
      LETHE_ASSIGN_OR_RETURN(const AppendReceipt receipt,
                             AppendInputs(command, call, &core_->scheduler, entry));
      core_->metrics->num_input_tokens +=
          static_cast<int64_t>(receipt.token_ids.end - receipt.token_ids.first);
      SetRange(receipt.token_ids, response->mutable_token_ids());
      response->set_num_inputs(receipt.num_inputs);
      return absl::OkStatus();
    });
  }

  grpc::Status ListInputs(grpc::ServerContext* context, const v1::ListInputsRequest* request,
                          v1::ListInputsResponse* response) override {
    return Serve("ListInputs", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto entry, FindSession(*core_, call, request->session_id()));
      LETHE_RETURN_IF_ERROR(CheckLabel("subject", request->subject()));
      LETHE_RETURN_IF_ERROR(ListInputRows(*request, entry.get(), response));
      return KeepIfDisclosed(call, *core_, entry.get(), response);
    });
  }

  grpc::Status GetStateDigest(grpc::ServerContext* context,
                              const v1::GetStateDigestRequest* request,
                              v1::GetStateDigestResponse* response) override {
    return Serve("GetStateDigest", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto entry, FindSession(*core_, call, request->session_id()));
      {
        FairMutexLock lock(&entry->mutex);
        LETHE_ASSIGN_OR_RETURN(const ComputeSlot slot, core_->scheduler.Acquire(call));
        LETHE_ASSIGN_OR_RETURN(const AnySession* session, entry->LiveSession());
        const audit::StateParts parts = session->StateParts();
        SetDigest(parts.Digest(),
                  request->include_parts() ? parts.parts() : std::vector<audit::StatePart>(),
                  response->mutable_digest());
        response->set_num_inputs(session->num_tokens());
      }
      return KeepIfDisclosed(call, *core_, entry.get(), response);
    });
  }

  grpc::Status ExportSession(grpc::ServerContext* context, const v1::ExportSessionRequest* request,
                             grpc::ServerWriter<v1::ExportSessionResponse>* writer) override {
    return Serve("ExportSession", context, core_, [&](const Call& call) -> absl::Status {
      return ServeExport(*request, call, core_, writer);
    });
  }

  grpc::Status ImportSession(grpc::ServerContext* context,
                             grpc::ServerReader<v1::ImportSessionRequest>* reader,
                             v1::ImportSessionResponse* response) override {
    return ServeErasing("ImportSession", context, core_, [&](const Call& call) -> absl::Status {
      return ServeImport(call, core_, reader, response);
    });
  }

 private:
  ServerCore* const core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeSessionService(ServerCore* core) {
  return std::make_unique<SessionService>(core);
}

}  // namespace lethe
