// Goal: what a server has answered survives kill -9 and is answered again after a restart; a token that a client got is
// in the history; no file of the data directory holds the text of a session.
// Method: the program on a tiny model, killed between and inside calls, started again on the same directory.
#include <atomic>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/integration/server_program.h"
#include "tests/integration/server_testing.h"
#include "tests/integration/vectors_testing.h"
#include "tests/server/store_testing.h"

namespace lethe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kMarker[] = "SENTINEL-5d07";

class ServerDurabilityTest : public ::testing::Test {
 protected:
  ServerDurabilityTest() {
    WriteTinyModel(directory_.path() + "/model", "tiny");
    Start();
  }

  void Start() {
    program_ = std::make_unique<Program>(
        std::vector<std::string>{"--model", directory_.path() + "/model", "--data", data_,
                                 "--listen", "127.0.0.1:0"},
        log_);
    stubs_ = std::make_unique<Stubs>(ConnectTo(program_->ReadAddress()));
  }
  void KillAndStart() {
    program_->Kill();
    Start();
  }
  std::string CreateSession() {
    Context context;
    v1::CreateSessionResponse created;
    const grpc::Status status = stubs_->session->CreateSession(&context, {}, &created);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return created.session().session_id();
  }
  grpc::Status Append(const std::string& id, const std::string& text, const std::string& subject,
                      const std::string& request_id, v1::AppendResponse* response) {
    Context context;
    v1::AppendRequest request;
    request.set_session_id(id);
    request.mutable_input()->set_text(text);
    request.set_subject(subject);
    request.set_request_id(request_id);
    return stubs_->session->Append(&context, request, response);
  }
  grpc::Status Forget(const std::string& id, const std::string& subject,
                      const std::string& request_id, v1::ForgetResponse* response) {
    Context context;
    v1::ForgetRequest request;
    request.set_session_id(id);
    request.mutable_selection()->set_subject(subject);
    request.set_derived_policy(v1::DERIVED_POLICY_FORGET_DERIVED);
    request.set_request_id(request_id);
    return stubs_->forgetting->Forget(&context, request, response);
  }
  std::string Digest(const std::string& id) {
    Context context;
    v1::GetStateDigestRequest request;
    request.set_session_id(id);
    v1::GetStateDigestResponse response;
    const grpc::Status status = stubs_->session->GetStateDigest(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.digest().SerializeAsString();
  }
  std::string Listing(const std::string& id) {
    Context context;
    v1::ListInputsRequest request;
    request.set_session_id(id);
    request.set_include_content(true);
    v1::ListInputsResponse response;
    const grpc::Status status = stubs_->session->ListInputs(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.SerializeAsString();
  }
  v1::GetCertificateResponse Certificate(const std::string& id, uint64_t seq) {
    Context context;
    v1::GetCertificateRequest request;
    request.set_session_id(id);
    request.set_seq(seq);
    v1::GetCertificateResponse response;
    const grpc::Status status = stubs_->certification->GetCertificate(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  uint64_t TreeSize() {
    Context context;
    v1::GetLogResponse response;
    const grpc::Status status = stubs_->audit->GetLog(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.tree_size();
  }

  TempDirectory directory_;
  const std::string data_ = directory_.path() + "/data";
  const std::string log_ = directory_.path() + "/stderr";
  std::unique_ptr<Program> program_;
  std::unique_ptr<Stubs> stubs_;
};

TEST_F(ServerDurabilityTest, WhatWasAnsweredIsThereAfterKill) {
  const std::string id = CreateSession();
  v1::AppendResponse appended;
  v1::AppendResponse repeated;
  v1::ForgetResponse forgotten;
  ASSERT_RPC_OK(Append(id, "the first visit", "", "a1", &appended));
  ASSERT_RPC_OK(Append(id, kMarker, "patient", "a2", &appended));
  ASSERT_RPC_OK(Append(id, "the second visit", "", "a3", &appended));
  ASSERT_RPC_OK(Forget(id, "patient", "f1", &forgotten));
  const std::string digest = Digest(id);
  const std::string listing = Listing(id);
  const std::string certificate = Certificate(id, 1).certificate().envelope();
  const std::string opening = Certificate(id, 1).certificate().opening();
  for (int restart = 0; restart < 2; ++restart) {
    KillAndStart();
    EXPECT_EQ(Digest(id), digest);
    EXPECT_EQ(Listing(id), listing);
    EXPECT_EQ(Certificate(id, 1).certificate().envelope(), certificate);
    EXPECT_EQ(Certificate(id, 1).certificate().opening(), opening);
    ASSERT_RPC_OK(Append(id, "the second visit", "", "a3", &repeated));
    EXPECT_EQ(repeated.SerializeAsString(), appended.SerializeAsString());
    v1::ForgetResponse again;
    ASSERT_RPC_OK(Forget(id, "patient", "f1", &again));
    EXPECT_TRUE(again.repeated_request());
    again.set_repeated_request(false);
    EXPECT_EQ(again.SerializeAsString(), forgotten.SerializeAsString());
    EXPECT_EQ(Digest(id), digest);
    EXPECT_EQ(TreeSize(), 1u);
  }
  EXPECT_EQ(CountFound(FileBytes(data_), {kMarker, "the first visit", "patient"}), 0);
  EXPECT_THAT(audit::ReadFile(log_), HasSubstr("1 sessions with 31 inputs came back"));
  EXPECT_THAT(audit::ReadFile(log_), Not(HasSubstr("SENTINEL")));
}

TEST_F(ServerDurabilityTest, AVectorSessionIsThereAfterKill) {
  Requests requests("");
  Context create_context;
  v1::CreateVectorSessionResponse created;
  ASSERT_RPC_OK(stubs_->memory->CreateVectorSession(&create_context, requests.create, &created));
  const std::string id = created.session().session_id();
  requests.append.set_session_id(id);
  for (int call = 0; call < 5; ++call) {
    requests.append.mutable_keys()->Clear();
    requests.append.mutable_values()->Clear();
    SetNumbers(Normals(30, static_cast<unsigned>(call)), kKeyDim, requests.append.mutable_keys());
    SetNumbers(Normals(20, static_cast<unsigned>(call)), kValueDim,
               requests.append.mutable_values());
    requests.append.set_subject(call == 2 ? "patient" : "");
    Context context;
    v1::AppendVectorsResponse response;
    ASSERT_RPC_OK(stubs_->memory->AppendVectors(&context, requests.append, &response));
  }
  v1::ForgetResponse forgotten;
  ASSERT_RPC_OK(Forget(id, "patient", "f1", &forgotten));
  const std::string digest = Digest(id);
  KillAndStart();
  EXPECT_EQ(Digest(id), digest);
  Context list_context;
  v1::ListSessionsResponse sessions;
  ASSERT_RPC_OK(stubs_->session->ListSessions(&list_context, {}, &sessions));
  ASSERT_EQ(sessions.sessions_size(), 1);
  EXPECT_EQ(sessions.sessions(0).num_inputs(), 40);
  EXPECT_EQ(sessions.sessions(0).num_forgotten(), 10);
}

TEST_F(ServerDurabilityTest, TokensThatAClientGotSurviveAKillInTheStream) {
  const std::string id = CreateSession();
  std::map<uint64_t, int32_t> got;
  v1::GenerateRequest request;
  request.set_session_id(id);
  request.mutable_prompt()->set_text("and then");
  request.mutable_output()->set_max_tokens(500);
  request.mutable_output()->set_ignore_end_of_text(true);
  request.mutable_sampling()->set_temperature(1);
  request.set_request_id("g1");
  {
    Context context;
    const auto reader = stubs_->generation->Generate(&context, request);
    v1::GenerateResponse event;
    while (reader->Read(&event)) {
      for (const v1::GeneratedToken& token : event.delta().tokens()) {
        got[token.token_id()] = token.vocab_id();
      }
      if (got.size() >= 40) program_->Kill();
    }
    EXPECT_FALSE(reader->Finish().ok());
  }
  ASSERT_GE(got.size(), 40u);
  Start();
  Context context;
  v1::ListInputsRequest list;
  list.set_session_id(id);
  list.set_include_content(true);
  v1::ListInputsResponse inputs;
  ASSERT_RPC_OK(stubs_->session->ListInputs(&context, list, &inputs));
  std::map<uint64_t, int32_t> kept;
  for (const v1::Input& input : inputs.inputs()) kept[input.token_id()] = input.vocab_id();
  for (const auto& [token_id, vocab_id] : got) EXPECT_EQ(kept[token_id], vocab_id) << token_id;
  EXPECT_GE(kept.size(), got.size() + 8);
  Context again_context;
  const auto again = stubs_->generation->Generate(&again_context, request);
  v1::GenerateResponse event;
  while (again->Read(&event)) {
  }
  EXPECT_THAT(again->Finish(),
              IsError(grpc::StatusCode::ALREADY_EXISTS, "REQUEST_DONE", "request_id"));
}

// One round: appends and Forgets until a kill at a random time, then what was answered is compared.
TEST_F(ServerDurabilityTest, AKillAtARandomTimeLosesNothingThatWasAnswered) {
  const std::string id = CreateSession();
  int num_forgotten = 0;  // that were answered
  for (int round = 0; round < 12; ++round) {
    std::atomic<bool> stop{false};
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5 + 17 * round));
      stop = true;
      program_->Kill();
    });
    std::string pending;  // request_id of the call that was not answered
    std::string label;
    for (int call = 0; pending.empty(); ++call) {
      label = "label-" + std::to_string(round) + "-" + std::to_string(call);
      v1::AppendResponse appended;
      v1::ForgetResponse forgotten;
      if (!Append(id, "abcd", label, "a" + label, &appended).ok()) pending = "append";
      if (pending.empty() && !Forget(id, label, "f" + label, &forgotten).ok()) pending = "forget";
      if (pending.empty()) ++num_forgotten;
    }
    killer.join();
    ASSERT_TRUE(stop);
    Start();
    Context context;
    v1::GetSessionRequest get;
    get.set_session_id(id);
    v1::GetSessionResponse session;
    ASSERT_RPC_OK(stubs_->session->GetSession(&context, get, &session));
    const int64_t extra = session.session().num_forgotten() - 4 * num_forgotten;
    // The call without an answer was done whole or not at all.
    EXPECT_TRUE(extra == 0 || (extra == 4 && pending == "forget")) << extra;
    EXPECT_TRUE(session.session().num_inputs() == 0 || session.session().num_inputs() == 4);
    EXPECT_EQ(TreeSize(), session.session().audit_seq());
    // Its repeats end in the same place.
    v1::AppendResponse appended;
    v1::ForgetResponse forgotten;
    if (pending == "append") ASSERT_RPC_OK(Append(id, "abcd", label, "a" + label, &appended));
    ASSERT_RPC_OK(Forget(id, label, "f" + label, &forgotten));
    ++num_forgotten;
    EXPECT_EQ(forgotten.num_inputs(), 0);
    Context again_context;
    ASSERT_RPC_OK(stubs_->session->GetSession(&again_context, get, &session));
    EXPECT_EQ(session.session().num_forgotten(), 4 * num_forgotten);
    EXPECT_EQ(TreeSize(), static_cast<uint64_t>(num_forgotten));
  }
}

TEST_F(ServerDurabilityTest, AForgetSubjectGoesOnAfterKills) {
  std::vector<std::string> ids;
  for (int i = 0; i < 40; ++i) {
    ids.push_back(CreateSession());
    v1::AppendResponse appended;
    ASSERT_RPC_OK(Append(ids.back(), "a visit", "", "", &appended));
    ASSERT_RPC_OK(Append(ids.back(), kMarker, "patient-of-all", "", &appended));
  }
  const std::string kept = Digest(ids[0]);
  v1::ForgetSubjectRequest request;
  request.set_subject("patient-of-all");
  request.set_derived_policy(v1::DERIVED_POLICY_FAIL);
  request.set_request_id("s1");
  v1::GetSubjectJobRequest get;
  {
    Context context;
    v1::ForgetSubjectResponse started;
    ASSERT_RPC_OK(stubs_->forgetting->ForgetSubject(&context, request, &started));
    get.set_job_id(started.job().job_id());
  }
  for (const int milliseconds : {0, 20, 60}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    KillAndStart();
    v1::AppendResponse appended;
    const grpc::Status status = Append(ids[0], "x", "patient-of-all", "", &appended);
    // Refused as long as it runs, which it does without being asked.
    if (!status.ok()) {
      EXPECT_THAT(status, IsError(grpc::StatusCode::FAILED_PRECONDITION, "SUBJECT_BEING_FORGOTTEN",
                                  "subject"));
    } else {
      break;
    }
  }
  {
    Context context;
    v1::WatchSubjectJobRequest watch;
    watch.set_job_id(get.job_id());
    const auto reader = stubs_->forgetting->WatchSubjectJob(&context, watch);
    v1::WatchSubjectJobResponse event;
    while (reader->Read(&event)) {
    }
    ASSERT_RPC_OK(reader->Finish());
    EXPECT_EQ(event.job().state(), v1::SUBJECT_JOB_STATE_DONE);
  }
  v1::GetSubjectJobResponse done;
  {
    Context context;
    ASSERT_RPC_OK(stubs_->forgetting->GetSubjectJob(&context, get, &done));
  }
  EXPECT_EQ(done.job().num_forgotten(), 40);
  EXPECT_EQ(done.job().num_inputs(), 40 * 13);
  EXPECT_FALSE(done.summary().envelope().empty());
  EXPECT_EQ(TreeSize(), 41u);
  EXPECT_NE(Digest(ids[0]), kept);
  EXPECT_EQ(CountFound(FileBytes(data_), {kMarker, "patient-of-all"}), 0);
  EXPECT_THAT(audit::ReadFile(log_), HasSubstr("goes on"));
  EXPECT_THAT(audit::ReadFile(log_), Not(HasSubstr("patient-of-all")));
}

TEST_F(ServerDurabilityTest, ADamagedStoreIsReportedAndTheServerStarts) {
  const std::string id = CreateSession();
  v1::AppendResponse appended;
  ASSERT_RPC_OK(Append(id, "content", "", "", &appended));
  program_->Kill();
  const std::string path = data_ + "/sessions/data.keys";
  std::string keys = audit::ReadFile(path);
  for (size_t at = 4096 + 64 + 8; at + 64 < keys.size(); at += 64) keys[at] ^= 1;
  audit::WriteFile(path, keys);
  Start();
  Context context;
  v1::ListSessionsResponse sessions;
  ASSERT_RPC_OK(stubs_->session->ListSessions(&context, {}, &sessions));
  ASSERT_EQ(sessions.sessions_size(), 1);
  EXPECT_EQ(sessions.sessions(0).unavailable_reason(), "SESSION_QUARANTINED");
  EXPECT_EQ(Append(id, "more", "", "", &appended).error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_THAT(audit::ReadFile(log_), HasSubstr("is damaged and stays on disk unserved"));
}

}  // namespace
}  // namespace lethe::testing
