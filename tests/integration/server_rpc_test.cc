// Goal: every RPC does what its .proto says through a real channel.
// Method: a server in this process, a tiny random model, the auditor's verifier for what comes
// back.
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <grpcpp/generic/generic_stub.h>

#include "audit/certificate/dsse.h"
#include "audit/certificate/keys.h"
#include "audit/certificate/statement.h"
#include "audit/certificate/verify.h"
#include "audit/log/merkle_verify.h"
#include "audit/log/note.h"
#include "tests/integration/server_testing.h"

namespace lethe::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

class ServerRpcTest : public ServerTest {
 protected:
  v1::AppendResponse Append(const std::string& text, const std::string& subject) {
    Context context;
    v1::AppendRequest request;
    request.set_session_id(session_id_);
    request.mutable_input()->set_text(text);
    request.set_subject(subject);
    v1::AppendResponse response;
    const grpc::Status status = stubs_.session->Append(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  v1::ListInputsResponse ListInputs(const std::string& page_token, int page_size,
                                    grpc::Status* status) {
    Context context;
    v1::ListInputsRequest request;
    request.set_session_id(session_id_);
    request.set_page_token(page_token);
    request.set_page_size(page_size);
    request.set_include_content(true);
    v1::ListInputsResponse response;
    *status = stubs_.session->ListInputs(&context, request, &response);
    return response;
  }
  v1::ForgetResponse Forget(v1::ForgetRequest request) {
    Context context;
    request.set_session_id(session_id_);
    request.set_derived_policy(v1::DERIVED_POLICY_FORGET_DERIVED);
    v1::ForgetResponse response;
    const grpc::Status status = stubs_.forgetting->Forget(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  // What the signed statement says of each layer.
  std::vector<std::string> SignedMethods(const v1::CertificateRef& ref) {
    Context context;
    v1::GetCertificateRequest request;
    request.set_session_id(session_id_);
    request.set_seq(ref.seq());
    v1::GetCertificateResponse response;
    EXPECT_TRUE(stubs_.certification->GetCertificate(&context, request, &response).ok());
    const auto envelope = audit::ParseEnvelope(response.certificate().envelope());
    const auto statement = audit::ParseStatement(envelope->payload);
    std::vector<std::string> methods;
    for (const audit::LayerReport& layer : statement->layers) {
      methods.emplace_back(audit::LayerMethodName(layer.method));
    }
    EXPECT_THAT(methods, Not(IsEmpty()));
    return methods;
  }
  v1::ForgetResponse ForgetSubject(const std::string& subject) {
    v1::ForgetRequest request;
    request.mutable_selection()->set_subject(subject);
    return Forget(request);
  }
};

TEST_F(ServerRpcTest, SessionLifeCycle) {
  Append("hello", "s");
  Context get_context;
  v1::GetSessionRequest get;
  get.set_session_id(session_id_);
  v1::GetSessionResponse got;
  ASSERT_RPC_OK(stubs_.session->GetSession(&get_context, get, &got));
  EXPECT_EQ(got.session().num_inputs(), 5);
  EXPECT_EQ(got.session().model(), "tiny");
  EXPECT_GT(got.session().state_bytes(), 0);
  EXPECT_GT(got.session().create_time().seconds(), 1'700'000'000);

  session_id_ = CreateSession();
  Context list_context;
  v1::ListSessionsRequest list;
  list.set_page_size(1);
  v1::ListSessionsResponse first;
  ASSERT_RPC_OK(stubs_.session->ListSessions(&list_context, list, &first));
  ASSERT_EQ(first.sessions_size(), 1);
  list.set_page_token(first.next_page_token());
  Context second_context;
  v1::ListSessionsResponse second;
  ASSERT_RPC_OK(stubs_.session->ListSessions(&second_context, list, &second));
  ASSERT_EQ(second.sessions_size(), 1);
  EXPECT_LT(first.sessions(0).session_id(), second.sessions(0).session_id());
  EXPECT_THAT(second.next_page_token(), IsEmpty());

  Context delete_context;
  v1::DeleteSessionRequest remove;
  remove.set_session_id(get.session_id());
  v1::DeleteSessionResponse removed;
  ASSERT_RPC_OK(stubs_.session->DeleteSession(&delete_context, remove, &removed));
  EXPECT_EQ(removed.num_inputs(), 5);
  Context gone_context;
  EXPECT_THAT(stubs_.session->GetSession(&gone_context, get, &got),
              IsError(grpc::StatusCode::NOT_FOUND, "SESSION_NOT_FOUND", "session_id"));
}

TEST_F(ServerRpcTest, MemoryOptionsEnterTheDigest) {
  Append("same text", "");
  const std::string plain = Digest();
  Context context;
  v1::CreateSessionRequest request;
  request.mutable_memory_options()->set_sv_box_mass(16);
  request.set_display_name("named");
  v1::CreateSessionResponse response;
  ASSERT_RPC_OK(stubs_.session->CreateSession(&context, request, &response));
  EXPECT_EQ(response.session().memory_options().sv_box_mass(), 16);
  EXPECT_FALSE(response.session().memory_options().has_sv_sigma());
  EXPECT_EQ(response.session().display_name(), "named");
  session_id_ = response.session().session_id();
  Append("same text", "");
  EXPECT_NE(Digest(), plain);
}

TEST_F(ServerRpcTest, InputsAreListedInPagesUntilAForget) {
  Append("abcde", "s");
  Append("fgh", "");
  grpc::Status status;
  const v1::ListInputsResponse first = ListInputs("", 6, &status);
  ASSERT_RPC_OK(status);
  ASSERT_EQ(first.inputs_size(), 6);
  EXPECT_EQ(first.num_inputs(), 8);
  EXPECT_EQ(first.inputs(0).token_id(), 1u);
  EXPECT_EQ(first.inputs(0).subject(), "s");
  EXPECT_EQ(first.inputs(0).text(), "a");
  EXPECT_EQ(first.inputs(5).vocab_id(), 'f');
  EXPECT_EQ(first.inputs(5).kind(), v1::INPUT_KIND_APPENDED);
  const v1::ListInputsResponse second = ListInputs(first.next_page_token(), 6, &status);
  ASSERT_RPC_OK(status);
  EXPECT_EQ(second.inputs_size(), 2);
  EXPECT_THAT(second.next_page_token(), IsEmpty());
  ForgetSubject("s");
  ListInputs(first.next_page_token(), 6, &status);
  EXPECT_THAT(status, IsError(grpc::StatusCode::ABORTED, "HISTORY_CHANGED", "page_token"));
  const v1::ListInputsResponse after = ListInputs("", 6, &status);
  ASSERT_EQ(after.inputs_size(), 3);
  EXPECT_EQ(after.inputs(0).rank(), 0);
  EXPECT_EQ(after.inputs(0).token_id(), 6u);
}

TEST_F(ServerRpcTest, RepeatedAppendIsDoneOnce) {
  v1::AppendRequest request;
  request.set_session_id(session_id_);
  request.mutable_input()->set_text("abc");
  request.set_request_id("one");
  v1::AppendResponse first;
  v1::AppendResponse second;
  Context context;
  Context again;
  ASSERT_RPC_OK(stubs_.session->Append(&context, request, &first));
  ASSERT_RPC_OK(stubs_.session->Append(&again, request, &second));
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
  EXPECT_EQ(second.num_inputs(), 3);
  request.mutable_input()->set_text("abd");
  Context other;
  EXPECT_THAT(stubs_.session->Append(&other, request, &second),
              IsError(grpc::StatusCode::INVALID_ARGUMENT, "REQUEST_ID_REUSED", "request_id"));
}

TEST_F(ServerRpcTest, ForgetReturnsToTheStateWithoutTheInputs) {
  Append("kept before. ", "");
  const std::string without = Digest();
  Append("patient A", "a");
  v1::ForgetRequest request;
  request.mutable_selection()->set_subject("a");
  request.set_validate_only(true);
  const v1::ForgetResponse dry = Forget(request);
  EXPECT_EQ(dry.num_forgotten(), 9);
  EXPECT_FALSE(dry.has_certificate());
  EXPECT_FALSE(dry.has_digest_after());
  request.set_validate_only(false);
  request.set_nonce(std::string(20, 'n'));
  request.set_request_id("forget-1");
  const v1::ForgetResponse done = Forget(request);
  EXPECT_EQ(done.digest_after().sha256(), without);
  EXPECT_EQ(Digest(), without);
  ASSERT_EQ(done.forgotten_size(), 1);
  EXPECT_EQ(done.forgotten(0).first(), 14u);
  EXPECT_EQ(done.forgotten(0).end(), 23u);
  EXPECT_EQ(done.num_inputs(), 13);
  EXPECT_EQ(done.first_rank(), 13);
  EXPECT_EQ(done.certificate().seq(), 1u);
  ASSERT_EQ(done.methods_size(), 5);
  EXPECT_EQ(done.methods(0).method(), "re-evaluation");
  EXPECT_EQ(done.methods(0).influence(), "bounded");
  EXPECT_THAT(SignedMethods(done.certificate()), Each(done.methods(0).method()));
  const v1::ForgetResponse repeated = Forget(request);
  EXPECT_TRUE(repeated.repeated_request());
  EXPECT_EQ(repeated.certificate().leaf_index(), done.certificate().leaf_index());
}

TEST_F(ServerRpcTest, BothWaysOfAForgetEndInTheSameState) {
  const auto tell = [&] {
    Append("patient A", "a");
    Append(std::string(500, 'k'), "");
  };
  tell();
  v1::ForgetRequest request;
  request.mutable_selection()->set_subject("a");
  const v1::ForgetResponse replayed = Forget(request);
  EXPECT_EQ(replayed.methods(0).method(), "decremental");
  EXPECT_EQ(replayed.methods(1).method(), "replay");
  EXPECT_GT(replayed.num_replayed(), 400);
  EXPECT_THAT(SignedMethods(replayed.certificate()), ElementsAre("re-evaluation", "decremental"));
  EXPECT_EQ(replayed.digest_after().sha256(), Digest());
  session_id_ = CreateSession();
  tell();
  request.set_way(v1::FORGET_WAY_REEVALUATION);
  const v1::ForgetResponse evaluated = Forget(request);
  EXPECT_EQ(evaluated.methods(0).method(), "re-evaluation");
  EXPECT_EQ(Digest(), replayed.digest_after().sha256());
}

TEST_F(ServerRpcTest, CertificateVerifiesOffline) {
  Append(std::string(100, 'k'), "");
  Context context;
  v1::CertifyRequest request;
  request.set_session_id(session_id_);
  request.set_include_bundle(true);
  request.set_nonce(std::string(16, 'z'));
  v1::CertifyResponse response;
  ASSERT_RPC_OK(stubs_.certification->Certify(&context, request, &response));
  EXPECT_EQ(response.digest().sha256(), Digest());
  ASSERT_EQ(response.heads_size(), 1);
  EXPECT_EQ(response.heads(0).num_keys(), 64);
  EXPECT_TRUE(response.heads(0).has_gap());
  EXPECT_EQ(response.certificate().kind(), "certify");
  audit::CertificateFiles files;
  files.envelope = response.certificate().envelope();
  files.proof_file = response.certificate().log_proof();
  files.opening = response.certificate().opening();
  files.bundle = response.bundle();
  const auto keys = audit::ServerKeys::LoadOrCreate(server_.trail.directory.path() + "/data/keys");
  audit::VerifyOptions options;
  options.expected_nonce = request.nonce();
  const audit::VerifyReport report =
      audit::VerifyCertificate(files, *keys->Trust("lethe.dev/audit/test"), options);
  const audit::Check* failure = report.first_failure();
  EXPECT_TRUE(report.ok()) << (failure == nullptr ? "" : failure->name + ": " + failure->detail);

  Context partition_context;
  v1::ListPartitionRequest partition;
  partition.set_session_id(session_id_);
  partition.set_page_size(10);
  v1::ListPartitionResponse rows;
  ASSERT_RPC_OK(stubs_.certification->ListPartition(&partition_context, partition, &rows));
  EXPECT_EQ(rows.rows_size(), 10);
  EXPECT_EQ(rows.head(), response.heads(0).head());
  EXPECT_THAT(rows.next_page_token(), Not(IsEmpty()));

  Append("x", "");
  Context passed_context;
  v1::GetCertificateRequest get;
  get.set_session_id(session_id_);
  get.set_include_bundle(true);
  v1::GetCertificateResponse got;
  EXPECT_THAT(stubs_.certification->GetCertificate(&passed_context, get, &got),
              IsError(grpc::StatusCode::FAILED_PRECONDITION, "EPOCH_PASSED", "include_bundle"));
  get.set_include_bundle(false);
  Context get_context;
  ASSERT_RPC_OK(stubs_.certification->GetCertificate(&get_context, get, &got));
  EXPECT_EQ(got.certificate().opening(), response.certificate().opening());
}

TEST_F(ServerRpcTest, AuditLogProvesItself) {
  Append("abcdef", "");
  for (int i = 0; i < 3; ++i) {
    v1::ForgetRequest request;
    request.mutable_selection()->mutable_tokens()->add_token_ids(static_cast<uint64_t>(i + 1));
    Forget(request);
  }
  Context log_context;
  v1::GetLogResponse log;
  ASSERT_RPC_OK(stubs_.audit->GetLog(&log_context, {}, &log));
  EXPECT_EQ(log.origin(), "lethe.dev/audit/test");
  EXPECT_EQ(log.tree_size(), 3u);
  EXPECT_EQ(log.record_spki().size(), 44u);
  EXPECT_TRUE(audit::ParseVerifierKey(log.log_vkey()).ok());

  v1::ListRecordsRequest list;
  list.set_session_id(session_id_);
  list.set_page_size(2);
  Context list_context;
  v1::ListRecordsResponse records;
  ASSERT_RPC_OK(stubs_.audit->ListRecords(&list_context, list, &records));
  ASSERT_EQ(records.records_size(), 2);
  EXPECT_EQ(records.records(1).seq(), 2u);
  EXPECT_EQ(records.records(1).kind(), "forget");
  EXPECT_EQ(records.records(1).leaf().size(), 406u);
  EXPECT_THAT(records.records(1).envelope(), Not(IsEmpty()));
  list.set_page_token(records.next_page_token());
  Context rest_context;
  v1::ListRecordsResponse rest;
  ASSERT_RPC_OK(stubs_.audit->ListRecords(&rest_context, list, &rest));
  EXPECT_EQ(rest.records_size(), 1);
  Context all_context;
  v1::ListRecordsResponse all;
  ASSERT_RPC_OK(stubs_.audit->ListRecords(&all_context, {}, &all));
  ASSERT_EQ(all.records_size(), 3);
  EXPECT_THAT(all.records(0).kind(), IsEmpty());

  Context inclusion_context;
  v1::GetInclusionProofRequest inclusion;
  inclusion.set_leaf_index(2);
  v1::GetInclusionProofResponse proof;
  ASSERT_RPC_OK(stubs_.audit->GetInclusionProof(&inclusion_context, inclusion, &proof));
  EXPECT_THAT(proof.log_proof(), ::testing::StartsWith("c2sp.org/tlog-proof@v1\n"));

  Context consistency_context;
  v1::GetConsistencyProofRequest consistency;
  consistency.set_first_size(1);
  v1::GetConsistencyProofResponse consistent;
  ASSERT_RPC_OK(stubs_.audit->GetConsistencyProof(&consistency_context, consistency, &consistent));
  audit::ConsistencyClaim claim{1, consistent.second_size(), {}, {}};
  std::copy(consistent.first_root().begin(), consistent.first_root().end(), claim.old_root.begin());
  std::copy(consistent.second_root().begin(), consistent.second_root().end(),
            claim.new_root.begin());
  std::vector<audit::Sha256Digest> hashes;
  for (const std::string& hash : consistent.hashes()) {
    std::copy(hash.begin(), hash.end(), hashes.emplace_back().begin());
  }
  EXPECT_TRUE(audit::VerifyConsistency(claim, hashes).ok());
}

TEST_F(ServerRpcTest, ModelsAreDescribedAndTokenize) {
  Context context;
  v1::ListModelsResponse models;
  ASSERT_RPC_OK(stubs_.model->ListModels(&context, {}, &models));
  ASSERT_EQ(models.models_size(), 1);
  const v1::Model& model = models.models(0);
  EXPECT_EQ(model.name(), "tiny");
  EXPECT_EQ(model.vocab_size(), 256);
  EXPECT_EQ(model.max_tokens(), 600);
  EXPECT_EQ(model.device_kind(), "cpu");
  EXPECT_EQ(model.numerics_id().size(), 32u);
  EXPECT_EQ(model.memory_groups_size(), 5);
  Context get_context;
  v1::GetModelResponse got;
  ASSERT_RPC_OK(stubs_.model->GetModel(&get_context, {}, &got));
  EXPECT_EQ(got.model().model_digest(), model.model_digest());
  Context tokenize_context;
  v1::TokenizeRequest tokenize;
  tokenize.set_text("\xFFz");
  v1::TokenizeResponse tokens;
  ASSERT_RPC_OK(stubs_.model->Tokenize(&tokenize_context, tokenize, &tokens));
  EXPECT_THAT(tokens.vocab_ids(), ::testing::ElementsAre(255, 'z'));
  Context back_context;
  v1::DetokenizeRequest detokenize;
  *detokenize.mutable_input()->mutable_vocab_ids() = tokens.vocab_ids();
  v1::DetokenizeResponse text;
  ASSERT_RPC_OK(stubs_.model->Detokenize(&back_context, detokenize, &text));
  EXPECT_EQ(text.text(), "\xFFz");
}

TEST_F(ServerRpcTest, SecondServerOnThePortIsRefused) {
  const auto second = RpcServer::Start(&server_.core, {server_.rpc->address(), 1 << 20});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  for (const char* bad : {"nonsense", "127.0.0.1:", ":7070", "127.0.0.1:99999", "127.0.0.1:x"}) {
    EXPECT_EQ(RpcServer::Start(&server_.core, {bad, 1 << 20}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bad;
  }
}

}  // namespace
}  // namespace lethe::testing
