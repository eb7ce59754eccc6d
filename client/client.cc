#include "client/client.h"

#include <chrono>
#include <utility>

#include "client/channel.h"
#include "client/message_check.h"
#include "client/rpc_status.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"

#include "kernels/base/status_macros.h"
#include "lethe/v1/audit.grpc.pb.h"
#include "lethe/v1/certification.grpc.pb.h"
#include "lethe/v1/forgetting.grpc.pb.h"
#include "lethe/v1/generation.grpc.pb.h"
#include "lethe/v1/memory.grpc.pb.h"
#include "lethe/v1/model.grpc.pb.h"
#include "lethe/v1/session.grpc.pb.h"

namespace lethe::client {
namespace {

// A proof bundle holds keys and values of every retained input; gRPC's default of 4 MiB is too small.
constexpr int kMessageBytesMax = 1 << 30;
constexpr int kReconnectMs = 100;
constexpr std::chrono::milliseconds kConnectPatience(500);

void SetDeadline(grpc::ClientContext& context, double timeout_s) {
  context.set_deadline(
      std::chrono::system_clock::now() +
      std::chrono::microseconds(static_cast<int64_t>(std::min(timeout_s, 1e9) * 1e6)));
}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Call(const std::unique_ptr<Stub>& stub,
                              grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                           Response*),
                              const Request& request, double timeout_s) {
  LETHE_RETURN_IF_ERROR(CheckText(request));
  grpc::ClientContext context;
  SetDeadline(context, timeout_s);
  Response response;
  LETHE_RETURN_IF_ERROR(
      StatusFromRpc((stub.get()->*method)(&context, request, &response), request));
  return response;
}

}  // namespace

struct Client::Stubs {
  explicit Stubs(const std::shared_ptr<grpc::Channel>& channel)
      : session(v1::SessionService::NewStub(channel)),
        generation(v1::GenerationService::NewStub(channel)),
        forgetting(v1::ForgettingService::NewStub(channel)),
        certification(v1::CertificationService::NewStub(channel)),
        audit(v1::AuditService::NewStub(channel)),
        memory(v1::MemoryService::NewStub(channel)),
        model(v1::ModelService::NewStub(channel)) {}

  std::unique_ptr<v1::SessionService::Stub> session;
  std::unique_ptr<v1::GenerationService::Stub> generation;
  std::unique_ptr<v1::ForgettingService::Stub> forgetting;
  std::unique_ptr<v1::CertificationService::Stub> certification;
  std::unique_ptr<v1::AuditService::Stub> audit;
  std::unique_ptr<v1::MemoryService::Stub> memory;
  std::unique_ptr<v1::ModelService::Stub> model;
};

Client::Client(std::unique_ptr<Stubs> stubs, ConnectOptions options)
    : stubs_(std::move(stubs)), options_(std::move(options)) {}

Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const ConnectOptions& options) {
  if (options.address.empty()) {
    return absl::InvalidArgumentError("server address: empty, want HOST:PORT");
  }
  if (!(options.timeout_s > 0)) {
    return absl::InvalidArgumentError("timeout: want a number of seconds above 0");
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetMaxSendMessageSize(kMessageBytesMax);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMs);
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                         MakeChannel(options, arguments));
  // gRPC 1.51 reads connect()'s errno late: where Abseil counts the processors in between and there is
  // no /sys, a connection that was being made fails with ENOENT. The next attempt does not. Whether
  // one succeeded is for the first call to say.
  static_cast<void>(channel->WaitForConnected(std::chrono::system_clock::now() + kConnectPatience));
  return std::unique_ptr<Client>(new Client(std::make_unique<Stubs>(channel), options));
}

#define LETHE_CLIENT_CALL(method, service, member)                                          \
  absl::StatusOr<v1::method##Response> Client::method(const v1::method##Request& request) { \
    return Call(stubs_->member, &v1::service::Stub::method, request, options_.timeout_s);   \
  }

LETHE_CLIENT_CALL(CreateSession, SessionService, session)
LETHE_CLIENT_CALL(GetSession, SessionService, session)
LETHE_CLIENT_CALL(ListSessions, SessionService, session)
LETHE_CLIENT_CALL(DeleteSession, SessionService, session)
LETHE_CLIENT_CALL(Append, SessionService, session)
LETHE_CLIENT_CALL(ListInputs, SessionService, session)
LETHE_CLIENT_CALL(GetStateDigest, SessionService, session)
LETHE_CLIENT_CALL(Forget, ForgettingService, forgetting)
LETHE_CLIENT_CALL(ForgetSubject, ForgettingService, forgetting)
LETHE_CLIENT_CALL(GetSubjectJob, ForgettingService, forgetting)
LETHE_CLIENT_CALL(ListSubjectJobs, ForgettingService, forgetting)
LETHE_CLIENT_CALL(ListSubjectOutcomes, ForgettingService, forgetting)
LETHE_CLIENT_CALL(DeleteSubjectJob, ForgettingService, forgetting)
LETHE_CLIENT_CALL(Certify, CertificationService, certification)
LETHE_CLIENT_CALL(ListPartition, CertificationService, certification)
LETHE_CLIENT_CALL(GetCertificate, CertificationService, certification)
LETHE_CLIENT_CALL(GetLog, AuditService, audit)
LETHE_CLIENT_CALL(ListRecords, AuditService, audit)
LETHE_CLIENT_CALL(GetInclusionProof, AuditService, audit)
LETHE_CLIENT_CALL(GetConsistencyProof, AuditService, audit)
LETHE_CLIENT_CALL(CreateVectorSession, MemoryService, memory)
LETHE_CLIENT_CALL(AppendVectors, MemoryService, memory)
LETHE_CLIENT_CALL(Read, MemoryService, memory)
LETHE_CLIENT_CALL(Partition, MemoryService, memory)
LETHE_CLIENT_CALL(ListVectors, MemoryService, memory)
LETHE_CLIENT_CALL(EvictReserve, MemoryService, memory)
LETHE_CLIENT_CALL(ListModels, ModelService, model)
LETHE_CLIENT_CALL(GetModel, ModelService, model)
LETHE_CLIENT_CALL(Tokenize, ModelService, model)
LETHE_CLIENT_CALL(Detokenize, ModelService, model)

#undef LETHE_CLIENT_CALL

absl::Status Client::Generate(const v1::GenerateRequest& request,
                              absl::FunctionRef<bool(const v1::GenerateResponse&)> on_event) {
  LETHE_RETURN_IF_ERROR(CheckText(request));
  grpc::ClientContext context;
  SetDeadline(context, options_.timeout_s);
  const auto reader = stubs_->generation->Generate(&context, request);
  v1::GenerateResponse event;
  bool cancelled = false;
  while (!cancelled && reader->Read(&event)) {
    if (!on_event(event)) {
      context.TryCancel();
      cancelled = true;
    }
  }
  while (cancelled && reader->Read(&event)) {
  }
  return StatusFromRpc(reader->Finish());
}

absl::Status Client::WatchSubjectJob(
    const v1::WatchSubjectJobRequest& request,
    absl::FunctionRef<void(const v1::WatchSubjectJobResponse&)> on_event) {
  LETHE_RETURN_IF_ERROR(CheckText(request));
  grpc::ClientContext context;
  SetDeadline(context, options_.timeout_s);
  const auto reader = stubs_->forgetting->WatchSubjectJob(&context, request);
  v1::WatchSubjectJobResponse event;
  while (reader->Read(&event)) on_event(event);
  return StatusFromRpc(reader->Finish());
}

absl::Status Client::ExportSession(const v1::ExportSessionRequest& request,
                                   absl::FunctionRef<absl::Status(const std::string&)> on_data) {
  LETHE_RETURN_IF_ERROR(CheckText(request));
  grpc::ClientContext context;
  SetDeadline(context, options_.timeout_s);
  const auto reader = stubs_->session->ExportSession(&context, request);
  v1::ExportSessionResponse response;
  absl::Status taken;
  while (reader->Read(&response)) {
    if (!taken.ok()) continue;
    taken = on_data(response.data());
    if (!taken.ok()) context.TryCancel();
  }
  const absl::Status status = StatusFromRpc(reader->Finish());
  return taken.ok() ? status : taken;
}

absl::StatusOr<v1::ImportSessionResponse> Client::ImportSession(
    const v1::ImportHeader& header, absl::FunctionRef<absl::StatusOr<std::string>()> next_piece) {
  LETHE_RETURN_IF_ERROR(CheckText(header));
  grpc::ClientContext context;
  SetDeadline(context, options_.timeout_s);
  v1::ImportSessionResponse response;
  const auto writer = stubs_->session->ImportSession(&context, &response);
  v1::ImportSessionRequest request;
  *request.mutable_header() = header;
  bool open = writer->Write(request);
  absl::Status given;
  while (open) {
    absl::StatusOr<std::string> piece = next_piece();
    given = piece.status();
    if (!given.ok()) context.TryCancel();
    if (!given.ok() || piece->empty()) break;
    request.set_data(*std::move(piece));
    open = writer->Write(request);
  }
  // Where the server took no more, its status says why.
  writer->WritesDone();
  const absl::Status status = StatusFromRpc(writer->Finish(), header);
  LETHE_RETURN_IF_ERROR(given);
  LETHE_RETURN_IF_ERROR(status);
  return response;
}

}  // namespace lethe::client
