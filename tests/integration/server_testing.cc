#include "tests/integration/server_testing.h"

#include <chrono>
#include <cstdlib>

#include <google/protobuf/any.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/channel_arguments.h>

#include "kernels/base/check.h"
#include "server/device_options.h"

namespace lethe::testing {
namespace {

// Field 3 of google.rpc.Status.
std::string FirstDetail(const std::string& details) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(details.data()),
                                            static_cast<int>(details.size()));
  while (const uint32_t tag = in.ReadTag()) {
    if (tag == 26) {
      uint32_t size = 0;
      std::string bytes;
      LETHE_CHECK(in.ReadVarint32(&size) && in.ReadString(&bytes, static_cast<int>(size)));
      return bytes;
    }
    LETHE_CHECK(google::protobuf::internal::WireFormatLite::SkipField(&in, tag));
  }
  return "";
}

}  // namespace

Stubs::Stubs(const std::shared_ptr<grpc::Channel>& channel)
    : session(v1::SessionService::NewStub(channel)),
      generation(v1::GenerationService::NewStub(channel)),
      forgetting(v1::ForgettingService::NewStub(channel)),
      certification(v1::CertificationService::NewStub(channel)),
      audit(v1::AuditService::NewStub(channel)),
      model(v1::ModelService::NewStub(channel)),
      memory(v1::MemoryService::NewStub(channel)) {}

std::shared_ptr<grpc::Channel> ConnectTo(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

namespace {

// LETHE_TEST_DEVICE: the tests' one model computes there, as with lethe-server's --device, as long as the process.
void AttachTestDevice(ServerCore* core) {
  const char* device = std::getenv("LETHE_TEST_DEVICE");
  if (device == nullptr) return;
  DeviceOptions options;
  options.device = device;
  options.num_slots = 3;  // fewer than some tests have sessions
  static const auto* const backends = new std::vector<std::shared_ptr<DeviceBackend>>(
      AttachDevices(options, core->models, core->on_failure).value());
  core->devices = *backends;
}

}  // namespace

TestServer::TestServer(const Limits& limits, RpcOptions options) {
  core.SetLimits(limits);
  core.trail = trail.trail;
  core.record_spki = trail.data->record_spki();
  LETHE_CHECK(core.models.Add(TinyModel()).ok());
  AttachTestDevice(&core);
  auto started = RpcServer::Start(&core, options);
  LETHE_CHECK(started.ok());
  rpc = *std::move(started);
  channel = ConnectTo(rpc->address());
  stubs = std::make_unique<Stubs>(channel);
}

TestServer::~TestServer() { rpc->Shutdown(0); }

Context::Context() { set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(120)); }

std::string ServerTest::CreateSession() {
  Context context;
  v1::CreateSessionResponse response;
  const grpc::Status status = stubs_.session->CreateSession(&context, {}, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.session().session_id();
}

std::string ServerTest::Digest() {
  Context context;
  v1::GetStateDigestRequest request;
  request.set_session_id(session_id_);
  v1::GetStateDigestResponse response;
  const grpc::Status status = stubs_.session->GetStateDigest(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.digest().sha256();
}

v1::ErrorInfo DetailOf(const grpc::Status& status) {
  google::protobuf::Any any;
  v1::ErrorInfo info;
  if (any.ParseFromString(FirstDetail(status.error_details())) &&
      any.type_url() == "type.googleapis.com/google.rpc.ErrorInfo") {
    info.ParseFromString(any.value());
  }
  return info;
}

grpc::Status ServerTest::CallRaw(const std::string& method, const std::string& bytes,
                                 std::string* reply) {
  grpc::GenericStub stub(server_.channel);
  Context context;
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer buffer;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(&buffer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  grpc::Slice dumped;
  if (status.ok() && buffer.DumpToSingleSlice(&dumped).ok()) {
    reply->assign(reinterpret_cast<const char*>(dumped.begin()), dumped.size());
  }
  return status;
}

}  // namespace lethe::testing
