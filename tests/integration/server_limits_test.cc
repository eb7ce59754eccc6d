// Goal: each limit is met at its number, through the API: the answer names it, nothing has changed, and what was within it goes
// on; a client that does not read, hangs or stays away costs what the limits say.
// Method: servers in this process with small limits; conditions are waited for, times never measured.
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "tests/integration/frozen_relay.h"
#include "tests/integration/server_testing.h"
#include "tests/testing/small_model.h"

namespace lethe::testing {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

using Reader = std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>;

v1::GenerateRequest Request(const std::string& session_id, const std::string& prompt,
                            int max_tokens) {
  v1::GenerateRequest request;
  request.set_session_id(session_id);
  request.mutable_prompt()->set_text(prompt);
  request.mutable_output()->set_max_tokens(max_tokens);
  request.mutable_output()->set_ignore_end_of_text(true);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(11);
  return request;
}

// Whose window stays at HTTP/2's 64 KiB, where gRPC's would grow to megabytes.
std::shared_ptr<grpc::Channel> NarrowChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

grpc::Status Finish(const Reader& reader) {
  v1::GenerateResponse event;
  while (reader->Read(&event)) {
  }
  return reader->Finish();
}

class ServerLimitsTest : public ::testing::Test {
 protected:
  void Start(const Limits& limits, RpcOptions options = {"127.0.0.1:0"}) {
    server_ = std::make_unique<TestServer>(limits, options);
    narrow_ = std::make_unique<Stubs>(NarrowChannel(server_->rpc->address()));
    session_id_ = CreateSession("tiny");
  }
  std::string CreateSession(const std::string& model) {
    Context context;
    v1::CreateSessionRequest request;
    request.set_model(model);
    v1::CreateSessionResponse response;
    const grpc::Status status =
        server_->stubs->session->CreateSession(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.session().session_id();
  }
  // With as many logprobs as there may be, so that few tokens fill a connection.
  v1::GenerateRequest LongRequest() {
    v1::GenerateRequest request = Request(CreateSession(long_model_), "", 16'000);
    request.mutable_prompt()->mutable_vocab_ids()->add_vocab_ids(1);
    request.mutable_output()->set_top_logprobs(20);
    return request;
  }
  void AddLongModel() {
    const auto model = StreamingModel();
    long_model_ = model->config().name;
    ASSERT_TRUE(server_->core.models.Add(model).ok());
  }
  // A stream that runs: its first event was read.
  Reader HoldStream(Context* context, const v1::GenerateRequest& request) {
    Reader reader = narrow_->generation->Generate(context, request);
    v1::GenerateResponse event;
    EXPECT_TRUE(reader->Read(&event));
    return reader;
  }
  grpc::Status Append(const std::string& text) {
    Context context;
    v1::AppendRequest request;
    request.set_session_id(session_id_);
    request.mutable_input()->set_text(text);
    v1::AppendResponse response;
    return server_->stubs->session->Append(&context, request, &response);
  }
  grpc::Status Generate(const v1::GenerateRequest& request) {
    Context context;
    return Finish(server_->stubs->generation->Generate(&context, request));
  }
  int64_t NumInputs() {
    Context context;
    v1::GetSessionRequest request;
    request.set_session_id(session_id_);
    v1::GetSessionResponse response;
    EXPECT_TRUE(server_->stubs->session->GetSession(&context, request, &response).ok());
    return response.session().num_inputs();
  }
  int64_t NumStreams() const { return server_->core.admission->counts().streams; }
  int64_t NumWaiting() const { return server_->core.admission->counts().waiting; }
  static std::string Metadata(const grpc::Status& status, const std::string& key) {
    const v1::ErrorInfo info = DetailOf(status);
    const auto found = info.metadata().find(key);
    return found == info.metadata().end() ? "" : found->second;
  }

  std::unique_ptr<TestServer> server_;
  std::unique_ptr<Stubs> narrow_;  // for streams that are to run until they are read
  std::string session_id_;
  std::string long_model_;
};

TEST_F(ServerLimitsTest, PromptsAndHistoriesAreBounded) {
  Limits limits;
  limits.prompt_tokens = 10;
  limits.history_tokens = 25;
  Start(limits);
  const grpc::Status too_long = Append(std::string(11, 'a'));
  EXPECT_THAT(too_long, IsError(StatusCode::INVALID_ARGUMENT, "PROMPT_TOO_LONG", "input"));
  EXPECT_EQ(too_long.error_message(), "input: want at most 10 tokens (--prompt-tokens), got 11");
  EXPECT_EQ(Metadata(too_long, "limit"), "prompt-tokens");
  EXPECT_EQ(Metadata(too_long, "max"), "10");
  EXPECT_EQ(Metadata(too_long, "got"), "11");
  EXPECT_THAT(Generate(Request(session_id_, std::string(11, 'a'), 0)),
              IsError(StatusCode::INVALID_ARGUMENT, "PROMPT_TOO_LONG", "prompt"));
  EXPECT_EQ(NumInputs(), 0);
  ASSERT_RPC_OK(Append(std::string(10, 'a')));
  ASSERT_RPC_OK(Generate(Request(session_id_, std::string(10, 'a'), 0)));
  const grpc::Status full = Append(std::string(6, 'a'));
  EXPECT_THAT(full, IsError(StatusCode::INVALID_ARGUMENT, "CONTEXT_BUDGET", "input"));
  EXPECT_THAT(full.error_message(), HasSubstr("at most 5 tokens, which is what --history-tokens"));
  EXPECT_EQ(Metadata(full, "max"), "25");
  EXPECT_THAT(Generate(Request(session_id_, "a", 5)),
              IsError(StatusCode::INVALID_ARGUMENT, "CONTEXT_BUDGET", "output.max_tokens"));
  EXPECT_EQ(NumInputs(), 20);
  // Without a number of its own an answer ends where the limit is.
  v1::GenerateRequest open = Request(session_id_, "a", 0);
  open.mutable_output()->clear_max_tokens();
  ASSERT_RPC_OK(Generate(open));
  EXPECT_EQ(NumInputs(), 25);
}

TEST_F(ServerLimitsTest, ATenantsSessionsAndTheirBytesAreBounded) {
  Limits limits;
  limits.tenant_sessions = 2;
  limits.tenant_mib = 1;
  Start(limits);
  AddLongModel();
  v1::AppendRequest request;
  request.set_session_id(CreateSession(long_model_));
  for (int i = 0; i < 500; ++i) request.mutable_input()->mutable_vocab_ids()->add_vocab_ids(i % 32);
  const auto call = [&](const auto& method) {
    Context context;
    return method(&context);
  };
  v1::CreateSessionRequest creation;
  creation.set_model(long_model_);
  v1::CreateSessionResponse created;
  const grpc::Status third = call([&](auto* context) {
    return server_->stubs->session->CreateSession(context, creation, &created);
  });
  EXPECT_THAT(third, IsError(StatusCode::RESOURCE_EXHAUSTED, "TOO_MANY_SESSIONS", ""));
  EXPECT_EQ(Metadata(third, "limit"), "tenant-sessions");
  grpc::Status status;
  v1::AppendResponse appended;
  int64_t num_inputs = 0;
  while (status.ok()) {
    num_inputs = appended.num_inputs();
    status = call([&](auto* context) {
      return server_->stubs->session->Append(context, request, &appended);
    });
  }
  EXPECT_THAT(status, IsError(StatusCode::RESOURCE_EXHAUSTED, "TENANT_BYTES", ""));
  EXPECT_EQ(Metadata(status, "limit"), "tenant-mib");
  EXPECT_EQ(Metadata(status, "max"), "1");
  EXPECT_GT(num_inputs, 0);
  EXPECT_THAT(Generate(Request(session_id_, "a", 1)),
              IsError(StatusCode::RESOURCE_EXHAUSTED, "TENANT_BYTES", ""));
  // What makes room is not refused.
  v1::DeleteSessionRequest deletion;
  deletion.set_session_id(request.session_id());
  v1::DeleteSessionResponse deleted;
  ASSERT_RPC_OK(call([&](auto* context) {
    return server_->stubs->session->DeleteSession(context, deletion, &deleted);
  }));
  ASSERT_RPC_OK(Append("a"));
}

TEST_F(ServerLimitsTest, RequestsASecondAreBounded) {
  Limits limits;
  limits.tenant_requests_per_second = 1;
  Start(limits);
  grpc::Status status;
  while (status.ok()) status = Append("a");
  EXPECT_THAT(status, IsError(StatusCode::RESOURCE_EXHAUSTED, "TOO_MANY_REQUESTS", ""));
  EXPECT_EQ(Metadata(status, "limit"), "tenant-requests-per-second");
  EXPECT_NE(Metadata(status, "retry_after_ms"), "");
}

TEST_F(ServerLimitsTest, StreamsWaitAndTheQueueIsBounded) {
  Limits limits;
  limits.streams = 1;
  limits.queue = 1;
  limits.queue_seconds = 3600;
  Start(limits);
  AddLongModel();
  Context holder;
  const Reader held = HoldStream(&holder, LongRequest());
  grpc::Status waited;
  std::thread waiter([&] { waited = Generate(Request(session_id_, "abc", 2)); });
  while (NumWaiting() == 0) std::this_thread::yield();
  const grpc::Status refused = Generate(Request(session_id_, "abc", 2));
  EXPECT_THAT(refused, IsError(StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL", ""));
  EXPECT_EQ(Metadata(refused, "limit"), "queue");
  // Other calls do not wait for streams.
  ASSERT_RPC_OK(Append("x"));
  holder.TryCancel();
  EXPECT_EQ(Finish(held).error_code(), StatusCode::CANCELLED);
  waiter.join();
  ASSERT_RPC_OK(waited);
  EXPECT_EQ(NumInputs(), 1 + 3 + 2);
}

TEST_F(ServerLimitsTest, CancelOfAQueuedStreamLeavesTheRunningOneAlone) {
  Limits limits;
  limits.streams = 1;
  Start(limits);
  AddLongModel();
  Context holder;
  v1::GenerateRequest request = LongRequest();
  request.mutable_output()->set_max_tokens(2'000);
  const Reader held = HoldStream(&holder, request);
  Context gone;
  const Reader queued = server_->stubs->generation->Generate(&gone, Request(session_id_, "abc", 2));
  while (NumWaiting() == 0) std::this_thread::yield();
  gone.TryCancel();
  EXPECT_EQ(Finish(queued).error_code(), StatusCode::CANCELLED);
  while (NumWaiting() > 0) std::this_thread::yield();
  v1::GenerateResponse event;
  while (held->Read(&event)) {
  }
  ASSERT_RPC_OK(held->Finish());
  EXPECT_EQ(event.finished().usage().num_generated_tokens(), 2'000);
  EXPECT_EQ(NumInputs(), 0);
}

TEST_F(ServerLimitsTest, ShutdownSendsAwayWhoWaits) {
  Limits limits;
  limits.streams = 1;
  Start(limits);
  AddLongModel();
  Context holder;
  const Reader held = HoldStream(&holder, LongRequest());
  grpc::Status waited;
  std::thread waiter([&] { waited = Generate(Request(session_id_, "abc", 2)); });
  while (NumWaiting() == 0) std::this_thread::yield();
  std::thread stopper([&] { server_->rpc->Shutdown(3600); });
  waiter.join();
  EXPECT_THAT(waited, IsError(StatusCode::UNAVAILABLE, "SHUTTING_DOWN", ""));
  // The stream that ran goes on until its client has enough.
  v1::GenerateResponse event;
  ASSERT_TRUE(held->Read(&event));
  holder.TryCancel();
  Finish(held);
  stopper.join();
}

TEST_F(ServerLimitsTest, WhatStillRunsWhenADrainIsOverIsUnavailable) {
  Start({});
  const auto entry = server_->core.sessions.Find(session_id_).value();
  grpc::Status status;
  entry->mutex.Lock();
  std::thread caller([&] { status = Append("a"); });
  while (server_->core.admission->counts().calls == 0) std::this_thread::yield();
  std::thread stopper([&] { server_->rpc->Shutdown(0); });
  caller.join();  // the client is told while the call still waits
  entry->mutex.Unlock();
  stopper.join();
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE) << status.error_message();
}

TEST_F(ServerLimitsTest, ACallWithoutADeadlineGetsOne) {
  Limits limits;
  limits.deadline_seconds = 1;
  Start(limits);
  grpc::ClientContext context;
  const auto entry = server_->core.sessions.Find(session_id_).value();
  grpc::Status status;
  std::thread caller;
  {
    // Whoever holds the session keeps the call from beginning until its deadline has passed.
    FairMutexLock lock(&entry->mutex);
    caller = std::thread([&] {
      status = Finish(server_->stubs->generation->Generate(&context, Request(session_id_, "a", 3)));
    });
    while (NumStreams() == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  }
  caller.join();
  EXPECT_THAT(status, IsError(StatusCode::DEADLINE_EXCEEDED, "DEADLINE_CAP", ""));
  EXPECT_EQ(Metadata(status, "limit"), "deadline-seconds");
  EXPECT_EQ(Metadata(status, "max"), "1");
  EXPECT_EQ(NumInputs(), 0);
}

// Megabytes would come; what the client's window, gRPC and the sink hold is far less.
TEST_F(ServerLimitsTest, AClientThatDoesNotReadHoldsItsStreamUpAndIsCutOff) {
  Limits limits;
  limits.deadline_seconds = 1;
  Start(limits);
  AddLongModel();
  grpc::ClientContext context;  // no deadline
  const Reader reader = narrow_->generation->Generate(&context, LongRequest());
  while (server_->core.metrics->num_generated_tokens == 0) std::this_thread::yield();
  while (NumStreams() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LT(server_->core.metrics->num_generated_tokens, 4'000);
  EXPECT_THAT(Finish(reader).error_code(),
              ::testing::AnyOf(StatusCode::CANCELLED, StatusCode::DEADLINE_EXCEEDED));
}

TEST_F(ServerLimitsTest, AHalfOpenConnectionIsFoundAndItsStreamEnds) {
  RpcOptions options{"127.0.0.1:0"};
  options.keepalive_seconds = 1;
  options.keepalive_timeout_seconds = 1;
  Start({}, options);
  AddLongModel();
  FrozenRelay relay(server_->rpc->address());
  const Stubs stubs(NarrowChannel(relay.address()));
  grpc::ClientContext context;  // a deadline would end it too
  const Reader reader = stubs.generation->Generate(&context, LongRequest());
  v1::GenerateResponse event;
  ASSERT_TRUE(reader->Read(&event));
  relay.Freeze();
  while (NumStreams() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LT(server_->core.metrics->num_generated_tokens, 16'000);
  context.TryCancel();
  Finish(reader);
}

TEST_F(ServerLimitsTest, ATraceIsPassedThrough) {
  Start({});
  const std::string trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  for (const bool is_valid : {true, false}) {
    Context context;
    context.AddMetadata("traceparent", is_valid ? trace : "00-secret");
    v1::GetSessionRequest request;
    request.set_session_id(session_id_);
    v1::GetSessionResponse response;
    ASSERT_RPC_OK(server_->stubs->session->GetSession(&context, request, &response));
    const auto& metadata = context.GetServerInitialMetadata();
    const auto found = metadata.find("traceparent");
    ASSERT_EQ(found != metadata.end(), is_valid);
    if (is_valid) {
      EXPECT_EQ(std::string(found->second.data(), found->second.size()), trace);
    }
  }
}

}  // namespace
}  // namespace lethe::testing
