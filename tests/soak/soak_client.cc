#include "tests/soak/soak_client.h"

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "tests/server/serving_testing.h"
#include "tests/soak/canary.h"

namespace lethe::soak {
namespace {

using std::chrono::milliseconds;
using testing::Context;

constexpr int64_t kSessionsPerClient = 1 << 16;
// TinyModel's histories end at 600 tokens.
constexpr size_t kDeliveredMax = 300;
constexpr size_t kToldMax = 8;

std::chrono::system_clock::time_point In(milliseconds time) {
  return std::chrono::system_clock::now() + time;
}

}  // namespace

SoakClient::SoakClient(const std::string& address, int64_t index, uint64_t seed, SoakLog* log)
    : log_(log),
      index_(index),
      random_(seed * 1'000'003 + static_cast<uint64_t>(index)),
      channel_(address) {
  Create();
}

std::string SoakClient::NewRequestId() { return absl::StrCat("r", index_, "-", ++num_requests_); }

void SoakClient::Complain(const std::string& text) {
  log_->Complain(absl::StrCat("client ", index_, ", session ", num_sessions_, ": ", text));
}

void SoakClient::Scan(const char* where, absl::string_view bytes) {
  if (!ForeignCanary(bytes, owner_).empty()) {
    Complain(absl::StrCat("text of another session in ", where));
  }
}

void SoakClient::Create() {
  Context context;
  v1::CreateSessionRequest request;
  request.set_request_id(NewRequestId());
  v1::CreateSessionResponse response;
  told_.clear();
  forgotten_.clear();
  delivered_.clear();
  is_full_ = false;
  owner_ = index_ * kSessionsPerClient + ++num_sessions_;
  session_id_.clear();
  const grpc::Status status = channel_.stubs().session->CreateSession(&context, request, &response);
  if (Accept("CreateSession", status)) session_id_ = response.session().session_id();
}

void SoakClient::Delete() {
  Check(false);
  Context context;
  v1::DeleteSessionRequest request;
  request.set_session_id(session_id_);
  v1::DeleteSessionResponse response;
  Accept("DeleteSession", channel_.stubs().session->DeleteSession(&context, request, &response));
  Create();
}

void SoakClient::Append() {
  const Canary canary(owner_, ++num_labels_);
  const std::string label = "label of " + canary.text();
  v1::AppendRequest request;
  request.set_session_id(session_id_);
  request.mutable_input()->set_text(
      absl::StrCat("told ", canary.text(), std::string(static_cast<size_t>(Draw(20)), '.')));
  request.set_subject(label);
  request.set_request_id(NewRequestId());
  // An answer that came too late is fetched by the same request.
  for (bool hurry = Draw(4) == 0;; hurry = false) {
    Context context;
    if (hurry) context.set_deadline(In(milliseconds(1 + Draw(5))));
    v1::AppendResponse response;
    const grpc::Status status = channel_.stubs().session->Append(&context, request, &response);
    const bool accepted = Accept("Append", status);
    if (hurry && status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) continue;
    if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT) is_full_ = true;
    if (accepted) {
      told_[label] = {request.input().text(), response.token_ids().first(),
                      response.token_ids().end()};
    }
    return;
  }
}

void SoakClient::Arrive(const v1::GenerateResponse& event, Stream* stream) {
  Scan("an answer's text", event.delta().text());
  Scan("an answer's bytes", event.delta().raw());
  for (const v1::GeneratedToken& token : event.delta().tokens()) {
    delivered_[token.token_id()] = {token.vocab_id(), stream->ending};
    stream->last_token_id = token.token_id();
  }
  if (!event.has_forget_notice()) return;
  log_->Count("ForgetNotice on a stream");
  // What came before it may be gone.
  delivered_.clear();
  stream->noticed = true;
}

SoakClient::Stream SoakClient::Read(const v1::GenerateRequest& request, Ending ending) {
  Stream stream;
  stream.ending = ending;
  Context context;
  if (ending == Ending::kDeadline) context.set_deadline(In(milliseconds(1 + Draw(40))));
  const auto reader = channel_.stubs().generation->Generate(&context, request);
  const int64_t events_before_end = 1 + Draw(6);
  v1::GenerateResponse event;
  for (int64_t i = 1; reader->Read(&event); ++i) {
    Arrive(event, &stream);
    if (i != events_before_end) continue;
    if (ending == Ending::kCancel) context.TryCancel();
    if (ending == Ending::kDrop) channel_.Drop();
    if (ending == Ending::kForget && !told_.empty()) ForgetSome(told_.begin()->first, false);
  }
  stream.status = reader->Finish();
  // A stream that had ended on the server before the Forget has no notice of it.
  if (ending == Ending::kForget && !stream.noticed) delivered_.clear();
  return stream;
}

void SoakClient::Generate(Ending ending) {
  v1::GenerateRequest request;
  request.set_session_id(session_id_);
  request.mutable_prompt()->set_text("asked " + Canary(owner_, 0).text());
  request.mutable_output()->set_max_tokens(static_cast<int32_t>(1 + Draw(60)));
  request.mutable_output()->set_ignore_end_of_text(true);
  if (Draw(4) == 0) request.mutable_output()->add_stop("zz");
  request.mutable_sampling()->set_temperature(1);
  request.set_request_id(NewRequestId());
  const Stream stream = Read(request, ending);
  if (ending == Ending::kDrop) {
    // Whatever it says of the lost connection: the client knows what it did.
    log_->Count(stream.status.ok() ? "Generate" : "Generate, connection dropped");
    channel_.Connect();
    if (Draw(2) == 0) GoOn(std::move(request), stream);
    return;
  }
  constexpr const char* kNames[] = {"Generate", "Generate, cancelled", "Generate, short deadline",
                                    "", "Generate, Forget in it"};
  if (Accept(kNames[static_cast<int>(ending)], stream.status)) return;
  if (stream.status.error_code() == grpc::StatusCode::INVALID_ARGUMENT) is_full_ = true;
}

void SoakClient::GoOn(v1::GenerateRequest request, const Stream& broken) {
  request.set_last_token_id(broken.last_token_id);
  for (int attempt = 0; attempt < 200; ++attempt) {
    const Stream stream = Read(request, Ending::kWhole);
    if (stream.status.error_code() == grpc::StatusCode::ABORTED) {
      // The server has not found out yet.
      std::this_thread::sleep_for(milliseconds(20));
      continue;
    }
    Accept("Generate, gone on with", stream.status);
    return;
  }
  log_->Count("Generate, gone on with: still running");
}

void SoakClient::Forget() {
  if (told_.empty()) return Append();
  auto told = told_.begin();
  std::advance(told, Draw(static_cast<int64_t>(told_.size())));
  ForgetSome(told->first, Draw(3) == 0);
}

void SoakClient::ForgetSome(std::string label, bool by_ids) {
  const Told told = told_[label];
  v1::ForgetRequest request;
  request.set_session_id(session_id_);
  if (by_ids) {
    v1::TokenRange* const range = request.mutable_selection()->mutable_tokens()->add_ranges();
    range->set_first(told.first);
    range->set_end(told.end);
  } else {
    request.mutable_selection()->set_subject(label);
  }
  request.set_derived_policy(static_cast<v1::DerivedPolicy>(1 + Draw(3)));
  request.set_request_id(NewRequestId());
  for (bool hurry = Draw(6) == 0;; hurry = false) {
    Context context;
    if (hurry) context.set_deadline(In(milliseconds(1 + Draw(10))));
    v1::ForgetResponse response;
    const grpc::Status status = channel_.stubs().forgetting->Forget(&context, request, &response);
    const bool accepted = Accept("Forget", status);
    if (hurry && status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) continue;
    if (!accepted) return;
    if (response.num_forgotten() < static_cast<int64_t>(told.text.size())) {
      Complain("a Forget forgets less than was told");
    }
    told_.erase(label);
    forgotten_.insert(label);
    // Some of them may have been drawn from what is gone.
    delivered_.clear();
    return;
  }
}

void SoakClient::Certify() {
  Context context;
  v1::CertifyRequest request;
  request.set_session_id(session_id_);
  request.set_include_bundle(Draw(3) == 0);
  v1::CertifyResponse response;
  const grpc::Status status = channel_.stubs().certification->Certify(&context, request, &response);
  if (!Accept("Certify", status)) return;
  Scan("an envelope", response.certificate().envelope());
  Scan("an opening", response.certificate().opening());
  Scan("a bundle", response.bundle());
}

void SoakClient::Transfer() {
  const std::string key(32, static_cast<char>('a' + Draw(26)));
  Context export_context;
  v1::ExportSessionRequest request;
  request.set_session_id(session_id_);
  request.set_key(key);
  const auto reader = channel_.stubs().session->ExportSession(&export_context, request);
  std::string file;
  for (v1::ExportSessionResponse part; reader->Read(&part);) file += part.data();
  if (!Accept("ExportSession", reader->Finish())) return;
  if (!ForeignCanary(file, -1).empty()) Complain("an export holds plain text");
  Context import_context;
  v1::ImportSessionResponse imported;
  const auto writer = channel_.stubs().session->ImportSession(&import_context, &imported);
  v1::ImportSessionRequest part;
  part.mutable_header()->set_key(key);
  bool open = writer->Write(part);
  for (size_t at = 0; open && at < file.size(); at += 1000) {
    part.set_data(file.substr(at, 1000));
    open = writer->Write(part);
  }
  writer->WritesDone();
  if (!Accept("ImportSession", writer->Finish())) return;
  if (imported.digest().sha256() != imported.exported_digest().sha256()) {
    Complain("an imported session has another digest");
  }
  Context delete_context;
  v1::DeleteSessionRequest remove;
  remove.set_session_id(imported.session().session_id());
  v1::DeleteSessionResponse removed;
  Accept("DeleteSession",
         channel_.stubs().session->DeleteSession(&delete_context, remove, &removed));
}

void SoakClient::List() {
  bool complete = false;
  const std::vector<v1::Input> inputs = ListInputs(&complete);
  if (complete) CheckInputs(inputs);
}

void SoakClient::Step() {
  if (session_id_.empty() || is_full_ || delivered_.size() > kDeliveredMax) {
    return session_id_.empty() ? Create() : Delete();
  }
  const int64_t draw = Draw(100);
  if (draw < 26 && told_.size() < kToldMax) return Append();
  if (draw < 44) return Generate(Ending::kWhole);
  if (draw < 52) return Generate(Ending::kCancel);
  if (draw < 58) return Generate(Ending::kDeadline);
  if (draw < 62) return Generate(Ending::kDrop);
  if (draw < 67) return Generate(Ending::kForget);
  if (draw < 82) return Forget();
  if (draw < 88) return Certify();
  if (draw < 92) return Transfer();
  if (draw < 99) return List();
  Delete();
}

}  // namespace lethe::soak
