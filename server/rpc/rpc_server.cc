#include "server/rpc/rpc_server.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/rpc/library_logs.h"
#include "server/rpc/listen_address.h"
#include "server/rpc/malformed_request.h"
#include "server/rpc/services.h"

namespace lethe {
namespace {

constexpr const char* kServiceNames[] = {
    "lethe.v1.SessionService",       "lethe.v1.GenerationService", "lethe.v1.ForgettingService",
    "lethe.v1.CertificationService", "lethe.v1.AuditService",      "lethe.v1.ModelService",
    "lethe.v1.MemoryService"};

// The synchronous API takes one thread for each call that runs or waits (a Generate has one more to send): beside the streams that
// there may be, so many for others. Beyond them gRPC refuses by itself.
constexpr int kOtherCalls = 256;
constexpr int kMaxStreamsPerConnection = 256;
// What calls get to notice that they were told to stop, before they are cancelled.
constexpr std::chrono::seconds kStopGrace{2};
constexpr std::chrono::milliseconds kDrainLook{20};

// Whoever links Debian's library has reflection always: the library adds it to every server as it is loaded.
absl::Status LoadReflection() {
  if (dlopen(LETHE_REFLECTION_LIBRARY, RTLD_NOW) != nullptr) return absl::OkStatus();
  return absl::NotFoundError("--reflection: " LETHE_REFLECTION_LIBRARY " is not installed");
}

void SetConnectionOptions(const RpcOptions& options, grpc::ServerBuilder* builder) {
  // Without this a second server on the same port starts silently and gets half of the calls.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, options.keepalive_seconds * 1000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                              options.keepalive_timeout_seconds * 1000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // A stream whose client does not read sends no data; it is to be asked again and again all the same.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kClientPingSeconds * 1000);
  // What a compressed request held would stay in the block that its connection is read into (received_bytes.h).
  builder->AddChannelArgument(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
                              1 << GRPC_COMPRESS_NONE);
  builder->SetMaxReceiveMessageSize(options.max_message_bytes);
  if (options.max_connection_seconds > 0) {
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                                options.max_connection_seconds * 1000);
  }
}

}  // namespace

struct RpcServer::Impl {
  std::unique_ptr<TlsCredentials> tls;  // outlives the server, whose handshakes ask it
  std::vector<std::unique_ptr<grpc::Service>> services;
  std::unique_ptr<grpc::Server> server;
  bool shut_down = false;

  void SetServing(bool serving) {
    grpc::HealthCheckServiceInterface* health = server->GetHealthCheckService();
    health->SetServingStatus(serving);
    for (const char* name : kServiceNames) health->SetServingStatus(name, serving);
  }
};

RpcServer::RpcServer() : impl_(std::make_unique<Impl>()) {}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(ServerCore* core,
                                                            const RpcOptions& options) {
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(options.listen_address);
  if (!address.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--listen: ", address.status().message()));
  }
  TakeLibraryLogs();
  grpc::EnableDefaultHealthCheckService(true);
  if (options.reflection) LETHE_RETURN_IF_ERROR(LoadReflection());
  std::unique_ptr<RpcServer> rpc(new RpcServer());
  rpc->core_ = core;
  for (const auto make :
       {MakeSessionService, MakeGenerationService, MakeForgettingService, MakeCertificationService,
        MakeAuditService, MakeModelService, MakeMemoryService}) {
    rpc->impl_->services.push_back(make(core));
  }
  grpc::ServerBuilder builder;
  int port = 0;
  if (options.tls.has_value()) {
    LETHE_ASSIGN_OR_RETURN(rpc->impl_->tls, TlsCredentials::Open(*options.tls));
  }
  builder.AddListeningPort(
      options.listen_address,
      options.tls.has_value() ? rpc->impl_->tls->credentials() : grpc::InsecureServerCredentials(),
      &port);
  SetConnectionOptions(options, &builder);
  grpc::ResourceQuota quota("lethe-server");
  quota.SetMaxThreads(static_cast<int>(core->limits.streams + core->limits.queue) + kOtherCalls);
  builder.SetResourceQuota(quota);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(MakeMalformedRequestInterceptor());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  for (const auto& service : rpc->impl_->services) builder.RegisterService(service.get());
  rpc->impl_->server = builder.BuildAndStart();
  if (rpc->impl_->server == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat("--listen: cannot listen on ",
                                               options.listen_address,
                                               ": the address is in use or not of this machine"));
  }
  rpc->address_ = absl::StrCat(address->host, ":", port);
  rpc->impl_->SetServing(true);
  return rpc;
}

RpcServer::~RpcServer() {
  if (impl_->server != nullptr) Shutdown(0);
}

void RpcServer::Shutdown(int drain_seconds) {
  if (impl_->shut_down) return;
  impl_->shut_down = true;
  impl_->SetServing(false);
  core_->admission->Stop();
  core_->draining = true;
  const auto drain_end = std::chrono::system_clock::now() + std::chrono::seconds(drain_seconds);
  std::mutex mutex;
  std::condition_variable drained;
  bool done = false;
  std::thread stopper([&] {
    std::unique_lock<std::mutex> lock(mutex);
    const auto wait_until = [&](std::chrono::system_clock::time_point time) {
      return drained.wait_until(lock, time, [&] { return done; });
    };
    while (!wait_until(std::min(drain_end, std::chrono::system_clock::now() + kDrainLook))) {
      if (std::chrono::system_clock::now() >= drain_end) {
        core_->stopping = true;
        return;
      }
      // Whoever watches health would hold the end up; answers that are on their way get the grace.
      if (core_->admission->counts().calls > 0) continue;
      if (!wait_until(std::chrono::system_clock::now() + kStopGrace)) {
        grpc_server_cancel_all_calls(impl_->server->c_server());
      }
      return;
    }
  });
  // Accepts nothing from now on; cancels what runs at the deadline, returns when everything has
  // ended.
  impl_->server->Shutdown(drain_end + kStopGrace);
  {
    std::unique_lock<std::mutex> lock(mutex);
    done = true;
  }
  drained.notify_all();
  stopper.join();
}

}  // namespace lethe
