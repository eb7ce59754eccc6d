// Goal: every bad request is refused with the code, reason and field of the table, repeats no
// content, and changes nothing.
// Method: one table of requests against one session; after each the state digest and the log are
// what they were.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/integration/server_testing.h"

namespace lethe::testing {
namespace {

constexpr char kSentinel[] = "SENTINEL-7f3a";

struct BadCase {
  std::string name;
  std::string reason;
  std::string field;
  std::function<grpc::Status(Stubs&, const std::string&)> call;
  grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
};

BadCase Generate(const std::string& name, const std::string& field,
                 const std::function<void(v1::GenerateRequest*)>& spoil,
                 const std::string& reason = "INVALID_FIELD") {
  return {name, reason, field, [spoil](Stubs& stubs, const std::string& session_id) {
            Context context;
            v1::GenerateRequest request;
            request.set_session_id(session_id);
            request.mutable_prompt()->set_text(kSentinel);
            request.mutable_output()->set_max_tokens(2);
            spoil(&request);
            const auto reader = stubs.generation->Generate(&context, request);
            v1::GenerateResponse response;
            while (reader->Read(&response)) {
            }
            return reader->Finish();
          }};
}

BadCase Append(const std::string& name, const std::string& field,
               const std::function<void(v1::AppendRequest*)>& spoil,
               const std::string& reason = "INVALID_FIELD") {
  return {name, reason, field, [spoil](Stubs& stubs, const std::string& session_id) {
            Context context;
            v1::AppendRequest request;
            request.set_session_id(session_id);
            request.mutable_input()->set_text(kSentinel);
            spoil(&request);
            v1::AppendResponse response;
            return stubs.session->Append(&context, request, &response);
          }};
}

BadCase Forget(const std::string& name, const std::string& field,
               const std::function<void(v1::ForgetRequest*)>& spoil,
               const std::string& reason = "INVALID_FIELD",
               grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT) {
  return {name, reason, field,
          [spoil](Stubs& stubs, const std::string& session_id) {
            Context context;
            v1::ForgetRequest request;
            request.set_session_id(session_id);
            request.mutable_selection()->mutable_tokens()->add_token_ids(2);
            request.set_derived_policy(v1::DERIVED_POLICY_KEEP_AND_REPORT);
            spoil(&request);
            v1::ForgetResponse response;
            return stubs.forgetting->Forget(&context, request, &response);
          },
          code};
}

BadCase Create(const std::string& name, const std::string& field,
               const std::function<void(v1::CreateSessionRequest*)>& spoil) {
  return {name, "INVALID_FIELD", field, [spoil](Stubs& stubs, const std::string& /*session_id*/) {
            Context context;
            v1::CreateSessionRequest request;
            spoil(&request);
            v1::CreateSessionResponse response;
            return stubs.session->CreateSession(&context, request, &response);
          }};
}

std::vector<BadCase> SamplingCases() {
  using R = v1::GenerateRequest*;
  return {
      Generate("TemperatureBelow", "sampling.temperature",
               [](R r) { r->mutable_sampling()->set_temperature(-0.1F); }),
      Generate("TemperatureAbove", "sampling.temperature",
               [](R r) { r->mutable_sampling()->set_temperature(10.1F); }),
      Generate("TemperatureNan", "sampling.temperature",
               [](R r) { r->mutable_sampling()->set_temperature(std::nanf("")); }),
      Generate("TopKNegative", "sampling.top_k", [](R r) { r->mutable_sampling()->set_top_k(-1); }),
      Generate("TopKAboveVocabulary", "sampling.top_k",
               [](R r) { r->mutable_sampling()->set_top_k(257); }),
      Generate("TopPZero", "sampling.top_p", [](R r) { r->mutable_sampling()->set_top_p(0); }),
      Generate("TopPNan", "sampling.top_p",
               [](R r) { r->mutable_sampling()->set_top_p(std::nanf("")); }),
      Generate("MinPOne", "sampling.min_p", [](R r) { r->mutable_sampling()->set_min_p(1); }),
      Generate("PenaltyZero", "sampling.repetition_penalty",
               [](R r) { r->mutable_sampling()->set_repetition_penalty(0); }),
      Generate("PenaltyInfinite", "sampling.repetition_penalty",
               [](R r) { r->mutable_sampling()->set_repetition_penalty(HUGE_VALF); }),
  };
}

std::vector<BadCase> GenerateCases() {
  using R = v1::GenerateRequest*;
  return {
      Generate("EmptyPrompt", "prompt", [](R r) { r->mutable_prompt()->set_text(""); }),
      Generate("PromptBytes", "prompt.text",
               [](R r) { r->mutable_prompt()->set_text(std::string((1 << 20) + 1, 'a')); }),
      Generate(
          "PromptBeyondContext", "prompt",
          [](R r) { r->mutable_prompt()->set_text(std::string(601, 'a')); }, "CONTEXT_BUDGET"),
      Generate("VocabIdNegative", "prompt.vocab_ids",
               [](R r) { r->mutable_prompt()->mutable_vocab_ids()->add_vocab_ids(-1); }),
      Generate("VocabIdTooLarge", "prompt.vocab_ids",
               [](R r) { r->mutable_prompt()->mutable_vocab_ids()->add_vocab_ids(256); }),
      Generate("MaxTokensNegative", "output.max_tokens",
               [](R r) { r->mutable_output()->set_max_tokens(-1); }),
      Generate("MaxTokensBeyondModel", "output.max_tokens",
               [](R r) { r->mutable_output()->set_max_tokens(601); }),
      Generate(
          "MaxTokensBeyondContext", "output.max_tokens",
          [](R r) { r->mutable_output()->set_max_tokens(590); }, "CONTEXT_BUDGET"),
      Generate("EmptyStop", "output.stop", [](R r) { r->mutable_output()->add_stop(""); }),
      Generate("LongStop", "output.stop",
               [](R r) { r->mutable_output()->add_stop(std::string(257, 's')); }),
      Generate("ManyStops", "output.stop",
               [](R r) {
                 for (int i = 0; i < 17; ++i) r->mutable_output()->add_stop(std::string(1, 's'));
               }),
      Generate("TopLogprobs", "output.top_logprobs",
               [](R r) { r->mutable_output()->set_top_logprobs(21); }),
      Generate("LongSubject", "subject", [](R r) { r->set_subject(std::string(129, 's')); }),
      Generate("RequestIdBlank", "request_id", [](R r) { r->set_request_id("a b"); }),
      Generate("RequestIdLong", "request_id", [](R r) { r->set_request_id(std::string(65, 'r')); }),
      Generate("SessionIdEmpty", "session_id", [](R r) { r->clear_session_id(); }),
      Generate("SessionIdUpperCase", "session_id", [](R r) { r->set_session_id("ABC"); }),
  };
}

std::vector<BadCase> AppendCases() {
  using R = v1::AppendRequest*;
  return {
      Append("AppendNothing", "input", [](R r) { r->clear_input(); }),
      Append("AppendEmptyIds", "input", [](R r) { r->mutable_input()->mutable_vocab_ids(); }),
      Append("AppendVocabId", "input.vocab_ids",
             [](R r) { r->mutable_input()->mutable_vocab_ids()->add_vocab_ids(1000); }),
      Append(
          "AppendBeyondContext", "input",
          [](R r) { r->mutable_input()->set_text(std::string(599, 'a')); }, "CONTEXT_BUDGET"),
      Append("AppendSubject", "subject", [](R r) { r->set_subject(std::string(129, 's')); }),
  };
}

std::vector<BadCase> ForgetCases() {
  using R = v1::ForgetRequest*;
  return {
      Forget("ForgetNothing", "selection", [](R r) { r->clear_selection(); }),
      Forget("ForgetEmptyTokens", "selection.tokens",
             [](R r) { r->mutable_selection()->mutable_tokens()->Clear(); }),
      Forget("ForgetManyTokens", "selection.tokens",
             [](R r) {
               for (int i = 0; i < 65536; ++i) {
                 r->mutable_selection()->mutable_tokens()->add_token_ids(2);
               }
             }),
      Forget("ForgetEmptyRange", "selection.tokens.ranges",
             [](R r) {
               v1::TokenRange* range = r->mutable_selection()->mutable_tokens()->add_ranges();
               range->set_first(3);
               range->set_end(3);
             }),
      Forget("ForgetEverythingFalse", "selection.everything",
             [](R r) { r->mutable_selection()->set_everything(false); }),
      Forget("ForgetEmptySubject", "selection.subject",
             [](R r) { r->mutable_selection()->set_subject(""); }),
      Forget("ForgetWay", "way", [](R r) { r->set_way(static_cast<v1::ForgetWay>(7)); }),
      Forget("ForgetPolicy", "derived_policy",
             [](R r) { r->set_derived_policy(v1::DERIVED_POLICY_UNSPECIFIED); }),
      Forget("ForgetNonce", "nonce", [](R r) { r->set_nonce("short"); }),
      Forget(
          "ForgetUnknownSubject", "selection",
          [](R r) { r->mutable_selection()->set_subject(kSentinel); }, "INPUT_NOT_FOUND",
          grpc::StatusCode::NOT_FOUND),
      Forget(
          "ForgetUnknownId", "selection",
          [](R r) { r->mutable_selection()->mutable_tokens()->add_token_ids(999); },
          "INPUT_NOT_FOUND", grpc::StatusCode::NOT_FOUND),
      Forget(
          "ForgetIdZero", "selection",
          [](R r) { r->mutable_selection()->mutable_tokens()->add_token_ids(0); },
          "INPUT_NOT_FOUND", grpc::StatusCode::NOT_FOUND),
      Forget(
          "ForgetBeforeTheFirst", "selection",
          [](R r) { r->mutable_selection()->set_before_token_id(1); }, "INVALID_SELECTION"),
      Forget(
          "ForgetDerivedRefused", "derived_policy",
          [](R r) { r->set_derived_policy(v1::DERIVED_POLICY_FAIL); }, "DERIVED_TOKENS",
          grpc::StatusCode::FAILED_PRECONDITION),
  };
}

std::vector<BadCase> CreateCases() {
  using R = v1::CreateSessionRequest*;
  return {
      Create("Slots", "memory_options.ovq_slots",
             [](R r) { r->mutable_memory_options()->set_ovq_slots(1); }),
      Create("BoxMass", "memory_options.sv_box_mass",
             [](R r) { r->mutable_memory_options()->set_sv_box_mass(0.5); }),
      Create("SigmaNan", "memory_options.sv_sigma",
             [](R r) { r->mutable_memory_options()->set_sv_sigma(std::nan("")); }),
      Create("Ridge", "memory_options.sv_ridge",
             [](R r) { r->mutable_memory_options()->set_sv_ridge(0); }),
      Create("DisplayName", "display_name",
             [](R r) { r->set_display_name(std::string(129, 'd')); }),
  };
}

template <typename Request, typename Response, typename Method>
BadCase Plain(const std::string& name, const std::string& field, Method method,
              const std::function<void(Request*)>& spoil,
              const std::string& reason = "INVALID_FIELD",
              grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT) {
  return {name, reason, field,
          [=](Stubs& stubs, const std::string& session_id) {
            Context context;
            Request request;
            if constexpr (requires { request.set_session_id(session_id); }) {
              request.set_session_id(session_id);
            }
            spoil(&request);
            Response response;
            return method(stubs, &context, request, &response);
          },
          code};
}

// One method of one stub as a function object.
#define LETHE_METHOD(stub, Method)                                                      \
  [](Stubs& stubs, grpc::ClientContext* context, const auto& request, auto* response) { \
    return stubs.stub->Method(context, request, response);                              \
  }

std::vector<BadCase> ReadCases() {
  using grpc::StatusCode;
  return {
      Plain<v1::ListInputsRequest, v1::ListInputsResponse>("InputPageSize", "page_size",
                                                           LETHE_METHOD(session, ListInputs),
                                                           [](auto* r) { r->set_page_size(-1); }),
      Plain<v1::ListInputsRequest, v1::ListInputsResponse>("InputPageToken", "page_token",
                                                           LETHE_METHOD(session, ListInputs),
                                                           [](auto* r) { r->set_page_token("x"); }),
      Plain<v1::ListSessionsRequest, v1::ListSessionsResponse>(
          "SessionPageSize", "page_size", LETHE_METHOD(session, ListSessions),
          [](auto* r) { r->set_page_size(-5); }),
      Plain<v1::ListSessionsRequest, v1::ListSessionsResponse>(
          "SessionPageToken", "page_token", LETHE_METHOD(session, ListSessions),
          [](auto* r) { r->set_page_token("NO"); }),
      Plain<v1::GetStateDigestRequest, v1::GetStateDigestResponse>(
          "DigestOfUnknownSession", "session_id", LETHE_METHOD(session, GetStateDigest),
          [](auto* r) { r->set_session_id("unknown"); }, "SESSION_NOT_FOUND",
          StatusCode::NOT_FOUND),
      Plain<v1::CertifyRequest, v1::CertifyResponse>(
          "CertifyNonce", "nonce", LETHE_METHOD(certification, Certify),
          [](auto* r) { r->set_nonce(std::string(33, 'n')); }),
      Plain<v1::ListPartitionRequest, v1::ListPartitionResponse>(
          "PartitionHead", "head", LETHE_METHOD(certification, ListPartition),
          [](auto* r) { r->set_head("layer.9"); }, "HEAD_NOT_FOUND", StatusCode::NOT_FOUND),
      Plain<v1::ListPartitionRequest, v1::ListPartitionResponse>(
          "PartitionPageSize", "page_size", LETHE_METHOD(certification, ListPartition),
          [](auto* r) { r->set_page_size(-1); }),
      Plain<v1::GetCertificateRequest, v1::GetCertificateResponse>(
          "CertificateSeq", "seq", LETHE_METHOD(certification, GetCertificate),
          [](auto* r) { r->set_seq(77); }, "RECORD_NOT_FOUND", StatusCode::NOT_FOUND),
      Plain<v1::ListRecordsRequest, v1::ListRecordsResponse>("RecordPageSize", "page_size",
                                                             LETHE_METHOD(audit, ListRecords),
                                                             [](auto* r) { r->set_page_size(-1); }),
      Plain<v1::GetInclusionProofRequest, v1::GetInclusionProofResponse>(
          "LeafIndex", "leaf_index", LETHE_METHOD(audit, GetInclusionProof),
          [](auto* r) { r->set_leaf_index(5); }, "LEAF_NOT_FOUND", StatusCode::OUT_OF_RANGE),
      Plain<v1::GetConsistencyProofRequest, v1::GetConsistencyProofResponse>(
          "FirstSize", "first_size", LETHE_METHOD(audit, GetConsistencyProof), [](auto* /*r*/) {}),
      Plain<v1::GetConsistencyProofRequest, v1::GetConsistencyProofResponse>(
          "SecondSize", "second_size", LETHE_METHOD(audit, GetConsistencyProof),
          [](auto* r) { r->set_second_size(9); }),
      Plain<v1::GetModelRequest, v1::GetModelResponse>(
          "ModelName", "model", LETHE_METHOD(model, GetModel),
          [](auto* r) { r->set_name("other"); }, "MODEL_NOT_FOUND", StatusCode::NOT_FOUND),
      Plain<v1::DetokenizeRequest, v1::DetokenizeResponse>(
          "DetokenizeId", "input.vocab_ids", LETHE_METHOD(model, Detokenize),
          [](auto* r) { r->mutable_input()->add_vocab_ids(256); }),
      Plain<v1::TokenizeRequest, v1::TokenizeResponse>(
          "TokenizeBytes", "text", LETHE_METHOD(model, Tokenize),
          [](auto* r) { r->set_text(std::string((1 << 20) + 1, 't')); }),
  };
}

#undef LETHE_METHOD

class ServerBadInputTest : public ServerTest {
 protected:
  void SetUp() override {
    v1::GenerateRequest request;
    request.set_session_id(session_id_);
    request.mutable_prompt()->set_text("start");
    request.mutable_output()->set_max_tokens(3);
    request.mutable_output()->set_ignore_end_of_text(true);
    Context context;
    const auto reader = stubs_.generation->Generate(&context, request);
    v1::GenerateResponse event;
    while (reader->Read(&event)) {
    }
    ASSERT_RPC_OK(reader->Finish());
  }
  void Refuse(const std::vector<BadCase>& cases) {
    const std::string digest = Digest();
    for (const BadCase& bad : cases) {
      const grpc::Status status = bad.call(stubs_, session_id_);
      EXPECT_THAT(status, IsError(bad.code, bad.reason, bad.field)) << bad.name;
      EXPECT_EQ(status.error_message().find("SENTINEL"), std::string::npos) << bad.name;
      EXPECT_EQ(status.error_details().find("SENTINEL"), std::string::npos) << bad.name;
      EXPECT_EQ(Digest(), digest) << bad.name;
    }
    EXPECT_EQ(server_.trail.data->log()->num_leaves(), 0u);
    EXPECT_EQ(server_.core.sessions.num_sessions(), 1);
  }
};

TEST_F(ServerBadInputTest, Sampling) { Refuse(SamplingCases()); }
TEST_F(ServerBadInputTest, GenerateFields) { Refuse(GenerateCases()); }
TEST_F(ServerBadInputTest, AppendFields) { Refuse(AppendCases()); }
TEST_F(ServerBadInputTest, ForgetFields) { Refuse(ForgetCases()); }
TEST_F(ServerBadInputTest, CreateFields) { Refuse(CreateCases()); }
TEST_F(ServerBadInputTest, ReadFields) { Refuse(ReadCases()); }

TEST_F(ServerBadInputTest, RangesAreWrittenOut) {
  const auto message = [&](const std::function<void(v1::MemoryOptions*)>& spoil) {
    Context context;
    v1::CreateSessionRequest request;
    spoil(request.mutable_memory_options());
    v1::CreateSessionResponse response;
    return stubs_.session->CreateSession(&context, request, &response).error_message();
  };
  EXPECT_EQ(message([](v1::MemoryOptions* m) { m->set_sv_box_mass(0); }),
            "memory_options.sv_box_mass: want 1 to 1048576");
  EXPECT_EQ(message([](v1::MemoryOptions* m) { m->set_sv_sigma(0); }),
            "memory_options.sv_sigma: want 9.5367431640625e-07 to 1048576");
  EXPECT_EQ(message([](v1::MemoryOptions* m) { m->set_ovq_slots(1); }),
            "memory_options.ovq_slots: want 2 to 65536");
}

TEST_F(ServerBadInputTest, OversizeMessageIsRefused) {
  const std::string digest = Digest();
  Context context;
  v1::AppendRequest request;
  request.set_session_id(session_id_);
  request.mutable_input()->set_text(std::string(9 << 20, 'a'));
  v1::AppendResponse response;
  const grpc::Status status = stubs_.session->Append(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  // gRPC's own words, from before any of our code runs; they have the size and the limit.
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("vs. 8388608"));
  EXPECT_EQ(Digest(), digest);
}

}  // namespace
}  // namespace lethe::testing
