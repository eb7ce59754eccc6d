#include "tests/crash/kill_client.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

#include "audit/certificate/trust.h"
#include "audit/certificate/verify.h"
#include "tests/audit/temp_directory.h"
#include "tests/integration/vectors_testing.h"

namespace lethe::testing {
namespace {

// The model's longest history is 600 tokens; each stream has one more for its prompt, and a kill before the first
// event leaves some that were not delivered.
constexpr int64_t kMostTokens = 80;
constexpr size_t kDeliveredMax = 300;

std::string Text(const Sizes& sizes) {
  return absl::StrCat(sizes.num_inputs, " inputs, ", sizes.num_forgotten, " forgotten, ",
                      sizes.num_records, " records");
}

}  // namespace

KillClient::KillClient(std::string directory, uint64_t seed)
    : directory_(std::move(directory)), random_(seed) {
  WriteTinyModel(directory_ + "/model", "tiny");
}

void KillClient::CreateSessions() {
  Requests requests("");
  requests.create.set_request_id("create-vectors");
  Context vector_context;
  v1::CreateVectorSessionResponse vectors;
  const grpc::Status status =
      stubs_->memory->CreateVectorSession(&vector_context, requests.create, &vectors);
  if (!status.ok()) return;
  empty_id_ = CreateModelSession("create-empty");
  model_id_ = CreateModelSession("create-model");
  if (!empty_id_.empty() && !model_id_.empty()) vector_id_ = vectors.session().session_id();
}

std::string KillClient::CreateModelSession(const std::string& request_id) {
  v1::CreateSessionRequest create;
  create.set_request_id(request_id);
  Context context;
  v1::CreateSessionResponse created;
  const grpc::Status status = stubs_->session->CreateSession(&context, create, &created);
  return status.ok() ? created.session().session_id() : "";
}

Sizes KillClient::AskSizes() {
  Context context;
  v1::GetSessionRequest request;
  request.set_session_id(vector_id_);
  v1::GetSessionResponse response;
  const grpc::Status status = stubs_->session->GetSession(&context, request, &response);
  if (!status.ok()) Complain("the session is not there: " + status.error_message());
  return {response.session().num_inputs(), response.session().num_forgotten(),
          response.session().audit_seq()};
}

std::string KillClient::AskDigest() {
  Context context;
  v1::GetStateDigestRequest request;
  request.set_session_id(vector_id_);
  v1::GetStateDigestResponse response;
  const grpc::Status status = stubs_->session->GetStateDigest(&context, request, &response);
  return status.ok() ? response.digest().sha256() : "";
}

void KillClient::CheckNewestRecord() {
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

void KillClient::CompareStream() {
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

void KillClient::Compare() {
  const Sizes found = AskSizes();
  const bool is_before = found == answered_;
  if (!is_before && !(pending_ != nullptr && found == pending_->after)) {
    return Complain(absl::StrCat("is ", Text(found), "; answered: ", Text(answered_),
                                 pending_ ? "; under way: " : "",
                                 pending_ ? Text(pending_->after) : ""));
  }
  if (is_before && !digest_.empty() && AskDigest() != digest_) Complain("has another digest");
  CompareStream();
  if (broken_ != nullptr) FinishStream();
  broken_.reset();
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

bool KillClient::Finish(const PendingCall& call) {
  if (!call.run().ok()) return false;
  answered_ = call.after;
  digest_.clear();
  ++num_answered_;
  return true;
}

KillClient::PendingCall KillClient::AppendCall(const std::string& label, int count) {
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

KillClient::PendingCall KillClient::ForgetCall(const std::string& label, int64_t count) {
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

KillClient::PendingCall KillClient::CertifyCall() {
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

KillClient::PendingCall KillClient::NextCall() {
  ++num_calls_;
  const int64_t draw = Draw(10);
  if (draw == 0) return CertifyCall();
  if (!labels_.empty() && (draw < 5 || labels_.size() > 6)) {
    const auto& [label, count] = *labels_.begin();
    return ForgetCall(label, count);
  }
  return AppendCall(absl::StrCat("label-", num_calls_), 1 + static_cast<int>(Draw(3)));
}

grpc::Status KillClient::ReadStream(const v1::GenerateRequest& request,
                                    std::vector<v1::GeneratedToken>* got,
                                    v1::GenerationStarted* started) {
  Context context;
  const auto reader = stubs_->generation->Generate(&context, request);
  v1::GenerateResponse event;
  while (reader->Read(&event)) {
    if (event.has_started()) *started = event.started();
    got->insert(got->end(), event.delta().tokens().begin(), event.delta().tokens().end());
  }
  return reader->Finish();
}

bool KillClient::StartSessionIfFull() {
  if (delivered_.size() < kDeliveredMax) return true;
  const std::string id = CreateModelSession(absl::StrCat("create-model-", num_model_sessions_));
  if (id.empty()) return false;
  ++num_model_sessions_;
  model_id_ = id;
  delivered_.clear();
  return true;
}

grpc::Status KillClient::Stream() {
  v1::GenerateRequest request;
  request.set_session_id(model_id_);
  request.mutable_prompt()->set_text("a");
  request.mutable_output()->set_max_tokens(static_cast<int32_t>(1 + Draw(kMostTokens)));
  request.mutable_output()->set_ignore_end_of_text(true);
  request.mutable_sampling()->set_temperature(1);
  request.set_request_id(absl::StrCat("stream-", ++num_calls_));
  arrived_.clear();
  v1::GenerationStarted started;
  const grpc::Status status = ReadStream(request, &arrived_, &started);
  for (const v1::GeneratedToken& token : arrived_) delivered_[token.token_id()] = token.vocab_id();
  if (!status.ok()) broken_ = std::make_unique<v1::GenerateRequest>(request);
  return status;
}

std::vector<int32_t> KillClient::HistoryBefore(uint64_t token_id) {
  Context context;
  v1::ListInputsRequest request;
  request.set_session_id(model_id_);
  request.set_include_content(true);
  v1::ListInputsResponse response;
  const grpc::Status status = stubs_->session->ListInputs(&context, request, &response);
  if (!status.ok()) Complain("no inputs: " + status.error_message());
  std::vector<int32_t> history;
  for (const v1::Input& input : response.inputs()) {
    if (input.token_id() < token_id) history.push_back(input.vocab_id());
  }
  return history;
}

void KillClient::FinishStream() {
  const uint64_t last = arrived_.empty() ? 0 : arrived_.back().token_id();
  broken_->set_last_token_id(last);
  v1::GenerationStarted started;
  std::vector<v1::GeneratedToken> whole = arrived_;
  grpc::Status status = ReadStream(*broken_, &whole, &started);
  if (!status.ok()) return Complain("a stream does not go on: " + status.error_message());
  // The machine did not lose its power.
  if (last != 0 && started.resumed_after_token_id() != last) Complain("a stream goes on elsewhere");
  if (last != 0) ++num_resumed_;
  for (const v1::GeneratedToken& token : whole) delivered_[token.token_id()] = token.vocab_id();
  const std::vector<int32_t> history = HistoryBefore(started.prompt_token_ids().end());
  v1::GenerateRequest fork = *broken_;
  fork.clear_last_token_id();
  fork.clear_request_id();
  fork.set_session_id(empty_id_);
  fork.set_remember(false);
  fork.mutable_sampling()->set_seed(started.seed());
  fork.mutable_prompt()->mutable_vocab_ids()->mutable_vocab_ids()->Assign(history.begin(),
                                                                          history.end());
  std::vector<v1::GeneratedToken> expected;
  v1::GenerationStarted fork_started;
  status = ReadStream(fork, &expected, &fork_started);
  if (!status.ok()) return Complain("no oracle: " + status.error_message());
  const bool equal =
      std::equal(whole.begin(), whole.end(), expected.begin(), expected.end(),
                 [](const auto& a, const auto& b) { return a.vocab_id() == b.vocab_id(); });
  if (!equal) Complain("a stream that went on is not one that never broke");
}

void KillClient::Live() {
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
    if (Draw(4) == 0) {
      if (!StartSessionIfFull() || !Stream().ok()) break;
      continue;
    }
    pending_ = std::make_unique<PendingCall>(NextCall());
    if (!Finish(*pending_)) break;
    pending_.reset();
    digest_ = AskDigest();
  }
  killer.join();
}

}  // namespace lethe::testing
