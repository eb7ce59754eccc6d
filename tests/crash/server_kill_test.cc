// Goal: a server that is killed at random times, starts included, has what it answered when it is started again: sessions
// with their digests, tokens that a stream delivered, records that verify; the call under way was done whole or not
// at all, and its repeat by request_id does it once.
// Method: the program and a client over gRPC; appends, Forgets, certificates and streams until the kill.
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "audit/certificate/trust.h"
#include "audit/certificate/verify.h"
#include "tests/audit/temp_directory.h"
#include "tests/integration/server_program.h"
#include "tests/integration/vectors_testing.h"
#include "tests/testing/long_run.h"

namespace lethe::testing {
namespace {

// Sizes of the vector session.
struct Sizes {
  int64_t num_inputs = 0;
  int64_t num_forgotten = 0;
  uint64_t num_records = 0;
  bool operator==(const Sizes& other) const {
    return num_inputs == other.num_inputs && num_forgotten == other.num_forgotten &&
           num_records == other.num_records;
  }
};

std::string Text(const Sizes& sizes) {
  return absl::StrCat(sizes.num_inputs, " inputs, ", sizes.num_forgotten, " forgotten, ",
                      sizes.num_records, " records");
}

// A client that remembers what it was answered.
class Client {
 public:
  Client(std::string directory, uint64_t seed);

  // One life of the server: start, compare, calls until the kill.
  void Live();

  const std::string& complaint() const { return complaint_; }
  int64_t num_compared() const { return num_compared_; }
  int64_t num_answered() const { return num_answered_; }

 private:
  struct PendingCall {
    std::function<grpc::Status()> run;
    Sizes after;
  };

  void Complain(const std::string& text) {
    if (complaint_.empty()) complaint_ = text;
  }
  int64_t Draw(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }
  void CreateSessions();
  void Compare();
  void CompareStream();
  void CheckNewestRecord();
  Sizes AskSizes();
  std::string AskDigest();
  // Runs the call, which may be a repeat.
  bool Finish(const PendingCall& call);
  PendingCall NextCall();
  PendingCall AppendCall(const std::string& label, int count);
  PendingCall ForgetCall(const std::string& label, int64_t count);
  PendingCall CertifyCall();
  grpc::Status Stream();

  const std::string directory_;
  std::mt19937_64 random_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<Stubs> stubs_;
  std::string vector_id_;
  std::string model_id_;
  std::map<std::string, int64_t> labels_;  // inputs under each
  std::map<uint64_t, int32_t> delivered_;  // vocab_id by token_id
  Sizes answered_;
  std::string digest_;  // of that state; empty: not asked
  std::unique_ptr<PendingCall> pending_;
  int num_calls_ = 0;
  int64_t num_compared_ = 0;
  int64_t num_answered_ = 0;
  std::string complaint_;
};

Client::Client(std::string directory, uint64_t seed)
    : directory_(std::move(directory)), random_(seed) {
  WriteTinyModel(directory_ + "/model", "tiny");
}

void Client::CreateSessions() {
  Requests requests("");
  requests.create.set_request_id("create-vectors");
  Context vector_context;
  v1::CreateVectorSessionResponse vectors;
  grpc::Status status =
      stubs_->memory->CreateVectorSession(&vector_context, requests.create, &vectors);
  if (!status.ok()) return;
  v1::CreateSessionRequest create;
  create.set_request_id("create-model");
  Context context;
  v1::CreateSessionResponse created;
  status = stubs_->session->CreateSession(&context, create, &created);
  if (!status.ok()) return;
  vector_id_ = vectors.session().session_id();
  model_id_ = created.session().session_id();
}

Sizes Client::AskSizes() {
  Context context;
  v1::GetSessionRequest request;
  request.set_session_id(vector_id_);
  v1::GetSessionResponse response;
  const grpc::Status status = stubs_->session->GetSession(&context, request, &response);
  if (!status.ok()) Complain("the session is not there: " + status.error_message());
  return {response.session().num_inputs(), response.session().num_forgotten(),
          response.session().audit_seq()};
}

std::string Client::AskDigest() {
  Context context;
  v1::GetStateDigestRequest request;
  request.set_session_id(vector_id_);
  v1::GetStateDigestResponse response;
  const grpc::Status status = stubs_->session->GetStateDigest(&context, request, &response);
  return status.ok() ? response.digest().sha256() : "";
}

void Client::CheckNewestRecord() {
  if (answered_.num_records == 0) return;
  Context context;
  v1::GetCertificateRequest request;
  request.set_session_id(vector_id_);
  v1::GetCertificateResponse response;
  const grpc::Status status = stubs_->certification->GetCertificate(&context, request, &response);
  if (!status.ok()) return Complain("no certificate: " + status.error_message());
  const auto trust = audit::ParseTrust(audit::ReadFile(directory_ + "/data/trust.txt"));
  if (!trust.ok()) return Complain("no trust file");
  const v1::Certificate& certificate = response.certificate();
  audit::CertificateFiles files;
  files.envelope = certificate.envelope();
  files.proof_file = certificate.log_proof();
  files.opening = certificate.opening();
  const audit::VerifyReport report = audit::VerifyCertificate(files, *trust);
  if (!report.ok()) Complain("the newest record does not verify");
}

void Client::CompareStream() {
  Context context;
  v1::ListInputsRequest request;
  request.set_session_id(model_id_);
  request.set_include_content(true);
  v1::ListInputsResponse response;
  const grpc::Status status = stubs_->session->ListInputs(&context, request, &response);
  if (!status.ok()) return Complain("no inputs: " + status.error_message());
  std::map<uint64_t, int32_t> kept;
  for (const v1::Input& input : response.inputs()) kept[input.token_id()] = input.vocab_id();
  for (const auto& [token_id, vocab_id] : delivered_) {
    if (kept[token_id] != vocab_id) Complain("a delivered token is not there");
  }
}

void Client::Compare() {
  const Sizes found = AskSizes();
  const bool is_before = found == answered_;
  if (!is_before && !(pending_ != nullptr && found == pending_->after)) {
    return Complain(absl::StrCat("is ", Text(found), "; answered: ", Text(answered_),
                                 pending_ ? "; under way: " : "",
                                 pending_ ? Text(pending_->after) : ""));
  }
  if (is_before && !digest_.empty() && AskDigest() != digest_) Complain("has another digest");
  CompareStream();
  Context context;
  v1::GetLogResponse log;
  const grpc::Status status = stubs_->audit->GetLog(&context, {}, &log);
  if (!status.ok() || log.tree_size() != found.num_records) {
    Complain("the log does not hold exactly the session's records");
  }
  // The client asks again.
  if (pending_ != nullptr && !Finish(*pending_)) Complain("a repeat fails");
  pending_.reset();
  if (!(AskSizes() == answered_)) Complain("a repeat ends elsewhere");
  CheckNewestRecord();
  ++num_compared_;
}

bool Client::Finish(const PendingCall& call) {
  if (!call.run().ok()) return false;
  answered_ = call.after;
  digest_.clear();
  ++num_answered_;
  return true;
}

Client::PendingCall Client::AppendCall(const std::string& label, int count) {
  v1::AppendVectorsRequest request;
  request.set_session_id(vector_id_);
  const auto seed = static_cast<unsigned>(num_calls_);
  SetNumbers(Normals(count * kKeyDim, seed), kKeyDim, request.mutable_keys());
  SetNumbers(Normals(count * kValueDim, seed + 1), kValueDim, request.mutable_values());
  request.set_subject(label);
  request.set_request_id(absl::StrCat("call-", num_calls_));
  Sizes after = answered_;
  after.num_inputs += count;
  return {[this, request, label, count] {
            Context context;
            v1::AppendVectorsResponse response;
            const grpc::Status status = stubs_->memory->AppendVectors(&context, request, &response);
            if (status.ok()) labels_[label] = count;
            return status;
          },
          after};
}

Client::PendingCall Client::ForgetCall(const std::string& label, int64_t count) {
  v1::ForgetRequest request;
  request.set_session_id(vector_id_);
  request.mutable_selection()->set_subject(label);
  request.set_derived_policy(v1::DERIVED_POLICY_FORGET_DERIVED);
  request.set_request_id(absl::StrCat("call-", num_calls_));
  const Sizes after = {answered_.num_inputs - count, answered_.num_forgotten + count,
                       answered_.num_records + 1};
  return {[this, request, label] {
            Context context;
            v1::ForgetResponse response;
            const grpc::Status status = stubs_->forgetting->Forget(&context, request, &response);
            if (status.ok()) labels_.erase(label);
            return status;
          },
          after};
}

Client::PendingCall Client::CertifyCall() {
  v1::CertifyRequest request;
  request.set_session_id(vector_id_);
  request.set_request_id(absl::StrCat("call-", num_calls_));
  Sizes after = answered_;
  ++after.num_records;
  return {[this, request] {
            Context context;
            v1::CertifyResponse response;
            return stubs_->certification->Certify(&context, request, &response);
          },
          after};
}

Client::PendingCall Client::NextCall() {
  ++num_calls_;
  const int64_t draw = Draw(10);
  if (draw == 0) return CertifyCall();
  if (!labels_.empty() && (draw < 5 || labels_.size() > 6)) {
    const auto& [label, count] = *labels_.begin();
    return ForgetCall(label, count);
  }
  return AppendCall(absl::StrCat("label-", num_calls_), 1 + static_cast<int>(Draw(3)));
}

grpc::Status Client::Stream() {
  v1::GenerateRequest request;
  request.set_session_id(model_id_);
  request.mutable_prompt()->set_text("a");
  request.mutable_output()->set_max_tokens(static_cast<int32_t>(1 + Draw(6)));
  request.mutable_output()->set_ignore_end_of_text(true);
  request.mutable_sampling()->set_temperature(1);
  request.set_request_id(absl::StrCat("stream-", ++num_calls_));
  Context context;
  const auto reader = stubs_->generation->Generate(&context, request);
  v1::GenerateResponse event;
  while (reader->Read(&event)) {
    for (const v1::GeneratedToken& token : event.delta().tokens()) {
      delivered_[token.token_id()] = token.vocab_id();
    }
  }
  return reader->Finish();
}

void Client::Live() {
  program_ = std::make_unique<Program>(
      std::vector<std::string>{"--model", directory_ + "/model", "--data", directory_ + "/data",
                               "--listen", "127.0.0.1:0"},
      directory_ + "/stderr");
  const auto kill_within = [&](int64_t most_ms) {
    const auto life = std::chrono::milliseconds(Draw(most_ms));
    return std::thread([this, life] {
      std::this_thread::sleep_for(life);
      program_->Kill();
    });
  };
  if (Draw(6) == 0) return kill_within(150).join();  // while it starts
  const std::string address = program_->ReadAddress();
  if (address.empty()) return Complain("does not start");
  stubs_ = std::make_unique<Stubs>(ConnectTo(address));
  if (vector_id_.empty()) {
    CreateSessions();
  } else {
    Compare();
  }
  std::thread killer = kill_within(40);
  while (complaint_.empty() && !vector_id_.empty()) {
    if (delivered_.size() < 200 && Draw(4) == 0) {
      if (!Stream().ok()) break;
      continue;
    }
    pending_ = std::make_unique<PendingCall>(NextCall());
    if (!Finish(*pending_)) break;
    pending_.reset();
    digest_ = AskDigest();
  }
  killer.join();
}

class ServerKillRounds : public ::testing::TestWithParam<int> {};

TEST_P(ServerKillRounds, NothingAnsweredIsLost) {
  constexpr int kKills = 250;
  for (LongRun run(absl::StrCat("server_kill_", GetParam())); run.Next();) {
    const audit::TempDirectory directory(audit::TempDirectory::Where::kMemory);
    Client client(directory.path(), 2 * run.seed() + static_cast<uint64_t>(GetParam()));
    for (int kill = 0; kill < kKills; ++kill) {
      client.Live();
      ASSERT_EQ(client.complaint(), "") << "kill " << kill << ", seed " << run.seed();
    }
    EXPECT_GT(client.num_compared(), kKills / 2);
    EXPECT_GT(client.num_answered(), kKills / 2);
    run.Count("kills", kKills);
    run.Count("starts compared", client.num_compared());
    run.Count("calls answered", client.num_answered());
  }
}

INSTANTIATE_TEST_SUITE_P(Halves, ServerKillRounds, ::testing::Values(0, 1));

}  // namespace
}  // namespace lethe::testing
