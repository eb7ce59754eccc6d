// Goal: streams over a real channel: a Forget in the middle, a client that cancels, forks,
// deadlines, shutdown, health.
// Method: a server in this process; the client reads slowly enough for things to happen between two
// tokens, and every case accepts only outcomes that the contract allows.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "tests/integration/server_testing.h"

namespace lethe::testing {
namespace {

using Reader = std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>;

class ServerStreamTest : public ServerTest {
 protected:
  v1::GenerateRequest Request(const std::string& prompt, int max_tokens) const {
    v1::GenerateRequest request;
    request.set_session_id(session_id_);
    request.mutable_prompt()->set_text(prompt);
    request.mutable_output()->set_max_tokens(max_tokens);
    request.mutable_output()->set_ignore_end_of_text(true);
    request.mutable_sampling()->set_temperature(1);
    request.mutable_sampling()->set_seed(11);
    return request;
  }
  std::vector<v1::GenerateResponse> ReadAll(const v1::GenerateRequest& request,
                                            grpc::Status* status) {
    Context context;
    const Reader reader = stubs_.generation->Generate(&context, request);
    std::vector<v1::GenerateResponse> events;
    v1::GenerateResponse event;
    while (reader->Read(&event)) events.push_back(event);
    *status = reader->Finish();
    return events;
  }
  // All deltas as one: how tokens fall into messages depends on time.
  static v1::GenerationDelta Joined(const std::vector<v1::GenerateResponse>& events) {
    v1::GenerationDelta joined;
    for (const v1::GenerateResponse& event : events) {
      joined.mutable_text()->append(event.delta().text());
      joined.mutable_raw()->append(event.delta().raw());
      joined.mutable_tokens()->MergeFrom(event.delta().tokens());
    }
    return joined;
  }
  int64_t NumInputs() {
    Context context;
    v1::GetSessionRequest request;
    request.set_session_id(session_id_);
    v1::GetSessionResponse response;
    EXPECT_TRUE(stubs_.session->GetSession(&context, request, &response).ok());
    return response.session().num_inputs();
  }
};

TEST_F(ServerStreamTest, EventsComeInOrderAndAddUp) {
  v1::GenerateRequest request = Request("prompt", 20);
  request.mutable_output()->set_top_logprobs(2);
  request.set_subject("label");
  grpc::Status status;
  const auto events = ReadAll(request, &status);
  ASSERT_RPC_OK(status);
  ASSERT_GE(events.size(), 3u);
  ASSERT_TRUE(events.front().has_started());
  EXPECT_EQ(events.front().started().seed(), 11u);
  EXPECT_EQ(events.front().started().prompt_token_ids().end(), 7u);
  ASSERT_TRUE(events.back().has_finished());
  int num_tokens = 0;
  for (const v1::GenerateResponse& event : events) {
    for (const v1::GeneratedToken& token : event.delta().tokens()) {
      ++num_tokens;
      EXPECT_LE(token.logprob(), 0.0F);
      EXPECT_EQ(token.top_logprobs_size(), 2);
    }
  }
  EXPECT_EQ(num_tokens, 20);
  EXPECT_EQ(events.back().finished().usage().num_generated_tokens(), 20);
  EXPECT_EQ(NumInputs(), 26);
}

TEST_F(ServerStreamTest, SameSeedSameTextOnAnotherSession) {
  grpc::Status status;
  const auto first = ReadAll(Request("prompt", 20), &status);
  session_id_ = CreateSession();
  const auto second = ReadAll(Request("prompt", 20), &status);
  ASSERT_FALSE(first.empty());
  ASSERT_FALSE(second.empty());
  EXPECT_EQ(first.front().SerializeAsString(), second.front().SerializeAsString());
  EXPECT_EQ(Joined(first).tokens_size(), 20);
  EXPECT_EQ(Joined(first).SerializeAsString(), Joined(second).SerializeAsString());
}

TEST_F(ServerStreamTest, ForgetDuringAStream) {
  v1::GenerateRequest request = Request("a patient's record", 400);
  request.set_subject("p");
  Context context;
  const Reader reader = stubs_.generation->Generate(&context, request);
  v1::GenerateResponse event;
  int num_tokens = 0;
  while (num_tokens < 3 && reader->Read(&event)) num_tokens += event.delta().tokens_size();
  v1::ForgetRequest forget;
  forget.set_session_id(session_id_);
  v1::TokenRange* range = forget.mutable_selection()->mutable_tokens()->add_ranges();
  range->set_first(1);
  range->set_end(6);
  forget.set_derived_policy(v1::DERIVED_POLICY_KEEP_AND_REPORT);
  Context forget_context;
  v1::ForgetResponse receipt;
  ASSERT_RPC_OK(stubs_.forgetting->Forget(&forget_context, forget, &receipt));
  EXPECT_EQ(receipt.num_forgotten(), 5);
  bool noticed = false;
  while (reader->Read(&event)) {
    if (event.has_forget_notice()) {
      noticed = true;
      EXPECT_EQ(event.forget_notice().num_forgotten(), 5);
    }
    num_tokens += event.delta().tokens_size();
  }
  ASSERT_RPC_OK(reader->Finish());
  EXPECT_EQ(num_tokens, 400);
  // A Forget after the last token finds no stream to tell.
  EXPECT_TRUE(noticed || receipt.num_inputs() == 13 + 400);
  EXPECT_EQ(NumInputs(), 13 + 400);
}

TEST_F(ServerStreamTest, CancelledStreamEndsAndTheSessionServesOn) {
  {
    Context context;
    const Reader reader = stubs_.generation->Generate(&context, Request("abc", 500));
    v1::GenerateResponse event;
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(reader->Read(&event));
    context.TryCancel();
    while (reader->Read(&event)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  // The loop sees it within a token; until then the session is busy.
  grpc::Status status;
  do {
    ReadAll(Request("x", 0), &status);
  } while (status.error_code() == grpc::StatusCode::ABORTED);
  ASSERT_RPC_OK(status);
  EXPECT_LE(NumInputs(), 3 + 500 + 1);
}

TEST_F(ServerStreamTest, ForkLeavesTheDigestAlone) {
  grpc::Status status;
  ReadAll(Request("history", 5), &status);
  const std::string digest = Digest();
  v1::GenerateRequest request = Request("question", 20);
  request.set_remember(false);
  const auto events = ReadAll(request, &status);
  ASSERT_RPC_OK(status);
  EXPECT_EQ(Digest(), digest);
  EXPECT_EQ(events.front().started().num_context_tokens(), 7 + 5 + 8);
}

TEST_F(ServerStreamTest, ExpiredDeadlineChangesNothing) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() - std::chrono::seconds(1));
  const Reader reader = stubs_.generation->Generate(&context, Request("abc", 5));
  v1::GenerateResponse event;
  while (reader->Read(&event)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(NumInputs(), 0);
}

TEST_F(ServerStreamTest, RepeatedRequestIdIsNotStreamedAgain) {
  v1::GenerateRequest request = Request("abc", 5);
  request.set_request_id("g1");
  grpc::Status status;
  ReadAll(request, &status);
  ASSERT_RPC_OK(status);
  ReadAll(request, &status);
  EXPECT_THAT(status, IsError(grpc::StatusCode::ALREADY_EXISTS, "REQUEST_DONE", "request_id"));
  EXPECT_EQ(NumInputs(), 8);
}

TEST_F(ServerStreamTest, ACancelledStreamGoesOnBehindTheLastToken) {
  grpc::Status status;
  const auto whole = ReadAll(Request("abc", 400), &status);
  ASSERT_RPC_OK(status);
  session_id_ = CreateSession();
  v1::GenerateRequest request = Request("abc", 400);
  request.mutable_sampling()->clear_seed();
  request.set_request_id("g1");
  std::vector<v1::GenerateResponse> got;
  {
    Context context;
    const Reader reader = stubs_.generation->Generate(&context, request);
    v1::GenerateResponse event;
    while (Joined(got).tokens_size() < 20 && reader->Read(&event)) got.push_back(event);
    context.TryCancel();
    while (reader->Read(&event)) {
    }
    reader->Finish();
  }
  const v1::GenerationDelta before = Joined(got);
  ASSERT_GE(before.tokens_size(), 20);
  EXPECT_FALSE(got.front().started().has_resumed_after_token_id());
  const uint64_t last = before.tokens(before.tokens_size() - 1).token_id();
  request.set_last_token_id(last);
  std::vector<v1::GenerateResponse> rest;
  do {
    rest = ReadAll(request, &status);
  } while (DetailOf(status).reason() == "REQUEST_RUNNING");
  ASSERT_RPC_OK(status);
  v1::GenerationStarted started = rest.front().started();
  EXPECT_EQ(started.resumed_after_token_id(), last);
  started.clear_resumed_after_token_id();
  EXPECT_EQ(started.SerializeAsString(), got.front().started().SerializeAsString());
  // One in one piece, with the seed that the server drew.
  session_id_ = CreateSession();
  v1::GenerateRequest unbroken = Request("abc", 400);
  unbroken.mutable_sampling()->set_seed(started.seed());
  const v1::GenerationDelta all = Joined(ReadAll(unbroken, &status));
  ASSERT_RPC_OK(status);
  const v1::GenerationDelta after = Joined(rest);
  EXPECT_EQ(before.text() + after.text(), all.text());
  EXPECT_EQ(before.raw() + after.raw(), all.raw());
  ASSERT_EQ(before.tokens_size() + after.tokens_size(), all.tokens_size());
  for (int i = 0; i < all.tokens_size(); ++i) {
    const int there = before.tokens_size();
    const v1::GeneratedToken& token = i < there ? before.tokens(i) : after.tokens(i - there);
    EXPECT_EQ(token.vocab_id(), all.tokens(i).vocab_id()) << i;
  }
  EXPECT_NE(all.raw(), Joined(whole).raw());  // the seeds differ
}

TEST_F(ServerStreamTest, AStreamThatCannotGoOnIsNamed) {
  v1::GenerateRequest request = Request("abc", 5);
  request.set_request_id("g1");
  request.set_last_token_id(4);
  grpc::Status status;
  EXPECT_THAT(ReadAll(request, &status), ::testing::IsEmpty());
  EXPECT_THAT(status,
              IsError(grpc::StatusCode::FAILED_PRECONDITION, "NOT_RESUMABLE", "last_token_id"));
  EXPECT_EQ(NumInputs(), 0);
  request.clear_request_id();
  EXPECT_THAT(ReadAll(request, &status), ::testing::IsEmpty());
  EXPECT_THAT(status,
              IsError(grpc::StatusCode::INVALID_ARGUMENT, "INVALID_FIELD", "last_token_id"));
  request.set_request_id("g1");
  request.set_last_token_id(0);
  EXPECT_EQ(Joined(ReadAll(request, &status)).tokens_size(), 5);
  ASSERT_RPC_OK(status);
  EXPECT_EQ(Joined(ReadAll(request, &status)).tokens_size(), 5);
  ASSERT_RPC_OK(status);
  EXPECT_EQ(NumInputs(), 8);
}

TEST_F(ServerStreamTest, EmptySessionWantsAPrompt) {
  v1::GenerateRequest request = Request("", 5);
  request.clear_prompt();
  grpc::Status status;
  ReadAll(request, &status);
  EXPECT_THAT(status, IsError(grpc::StatusCode::FAILED_PRECONDITION, "EMPTY_CONTEXT", "prompt"));
}

TEST_F(ServerStreamTest, ManyClientsAtOnce) {
  std::vector<std::thread> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([this, i] {
      Context context;
      v1::GenerateRequest request = Request("shared", 30);
      request.set_remember(i % 2 != 0);
      const Reader reader = stubs_.generation->Generate(&context, request);
      v1::GenerateResponse event;
      while (reader->Read(&event)) {
      }
      const grpc::Status status = reader->Finish();
      EXPECT_TRUE(status.ok() || DetailOf(status).reason() == "SESSION_BUSY")
          << status.error_message();
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(NumInputs() % 36, 0);
}

TEST_F(ServerStreamTest, ShutdownEndsStreamsAtATokenBoundary) {
  Context context;
  const Reader reader = stubs_.generation->Generate(&context, Request("abc", 590));
  v1::GenerateResponse event;
  ASSERT_TRUE(reader->Read(&event));
  std::thread stopper([this] { server_.rpc->Shutdown(0); });
  v1::GenerateResponse last;
  while (reader->Read(&event)) last = event;
  const grpc::Status status = reader->Finish();
  stopper.join();
  if (status.ok()) {
    ASSERT_TRUE(last.has_finished());
    EXPECT_THAT(last.finished().reason(),
                ::testing::AnyOf(v1::FINISH_REASON_SHUTDOWN, v1::FINISH_REASON_MAX_TOKENS));
  } else {
    EXPECT_THAT(status.error_code(),
                ::testing::AnyOf(grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED));
  }
  EXPECT_FALSE(
      ConnectTo(server_.rpc->address())
          ->WaitForConnected(std::chrono::system_clock::now() + std::chrono::milliseconds(200)));
}

// grpc.health.v1.HealthCheckRequest{service = name}; the response's status is field 1 (1 =
// SERVING).
class HealthTest : public ServerStreamTest {
 protected:
  grpc::Status Check(const std::string& service, std::string* response) {
    std::string bytes;
    if (!service.empty()) {
      bytes = {'\x0A', static_cast<char>(service.size())};
      bytes += service;
    }
    return CallRaw("/grpc.health.v1.Health/Check", bytes, response);
  }
};

TEST_F(HealthTest, EveryServiceIsServing) {
  for (const char* service :
       {"", "lethe.v1.SessionService", "lethe.v1.GenerationService", "lethe.v1.ForgettingService",
        "lethe.v1.CertificationService", "lethe.v1.AuditService", "lethe.v1.ModelService",
        "lethe.v1.MemoryService"}) {
    std::string response;
    ASSERT_RPC_OK(Check(service, &response));
    EXPECT_EQ(response, "\x08\x01") << service;
  }
  std::string response;
  EXPECT_EQ(Check("lethe.v1.Nobody", &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

// Each word of a Watch, read when it is asked for.
class HealthWatch {
 public:
  HealthWatch(const std::shared_ptr<grpc::Channel>& channel, const std::string& service)
      : stub_(channel),
        call_(stub_.PrepareCall(&context_, "/grpc.health.v1.Health/Watch", &queue_)) {
    call_->StartCall(nullptr);
    Await();
    std::string bytes = {'\x0A', static_cast<char>(service.size())};
    const grpc::Slice slice(bytes + service);
    call_->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
    Await();
  }
  ~HealthWatch() {
    context_.TryCancel();
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Await();
  }
  // Empty: the stream has ended.
  std::string Next() {
    grpc::ByteBuffer reply;
    call_->Read(&reply, nullptr);
    grpc::Slice dumped;
    if (!Await() || !reply.DumpToSingleSlice(&dumped).ok()) return "";
    return std::string(reinterpret_cast<const char*>(dumped.begin()), dumped.size());
  }

 private:
  bool Await() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }
  Context context_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  const std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

TEST_F(HealthTest, AWatcherSeesTheEndComeAndDoesNotHoldItUp) {
  HealthWatch watch(server_.channel, "lethe.v1.GenerationService");
  EXPECT_EQ(watch.Next(), "\x08\x01");
  // An hour is longer than the test may take.
  std::thread stopper([this] { server_.rpc->Shutdown(3600); });
  EXPECT_EQ(watch.Next(), "\x08\x02");
  stopper.join();
}

TEST_F(HealthTest, WithoutTheOptionThereIsNoReflection) {
  std::string reply;
  EXPECT_EQ(
      CallRaw("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "\x3A\x01*", &reply)
          .error_code(),
      grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace
}  // namespace lethe::testing
