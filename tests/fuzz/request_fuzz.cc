// Goal: no bytes in a request of any method end the server, make an answer that is no documented one, or change a session when they are
// refused; what is not a change changes nothing.
// Method: up to six calls, each [service, method, flags, size (two bytes), request's bytes], on a server with one model session and one vector session. By
// the flags the ids of these, of the last new session or job and the last page token take the place of the request's, as no
// fuzzer finds them. After each call that was refused or only reads: the digests of both are what they were. At the end: contract C1.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include <google/protobuf/message.h>

#include "kernels/base/check.h"
#include "tests/fuzz/fuzz_bytes.h"
#include "tests/fuzz/fuzz_server.h"
#include "tests/fuzz/fuzz_targets.h"

namespace lethe::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MethodDescriptor;

constexpr int kCallsMax = 6;
constexpr uint8_t kSessionMask =
    3;  // 0: as it is, 1: model session, 2: vector session, 3: the last new one
constexpr uint8_t kJob = 4;
constexpr uint8_t kPageToken = 8;
constexpr uint8_t kRealExport = 16;  // ImportSession: an export of the model session follows

// Whether a call that is answered with OK may change a session.
bool IsChange(const MethodDescriptor& method) {
  for (const char* name : {"DeleteSession", "Append", "ImportSession", "Generate", "AppendVectors",
                           "EvictReserve", "Forget", "ForgetSubject"}) {
    if (method.name() == name) return true;
  }
  return false;
}

// Whether it may leave more behind than its answer.
bool LeavesTraces(const MethodDescriptor& method) {
  for (const char* start : {"Create", "Certify", "Export", "DeleteSubject"}) {
    if (absl::StartsWith(method.name(), start)) return true;
  }
  return IsChange(method);
}

class Calls {
 public:
  explicit Calls(FuzzServer* server)
      : server_(server),
        server_number_(server->number()),
        model_(server->NewModelSession()),
        vectors_(server->NewVectorSession()) {
    Look();
    first_model_digest_ = model_digest_;
    first_vector_digest_ = vector_digest_;
  }
  // Both sessions are as they were made, and nothing is remembered of what was asked.
  bool IsFresh(const FuzzServer& server) const {
    return !is_changed_ && server_number_ == server.number();
  }
  // The calls of one input.
  void Run(FuzzBytes* bytes);

 private:
  void RunOne(FuzzBytes* bytes);
  void Look() {
    model_digest_ = server_->Digest(model_);
    vector_digest_ = server_->Digest(vectors_);
  }
  void Replace(uint8_t flags, Message* message) const;
  void Remember(const Message& reply);
  std::vector<std::string> Messages(const MethodDescriptor& method, uint8_t flags,
                                    std::string bytes);

  FuzzServer* const server_;
  const int64_t server_number_;
  const std::string model_;
  const std::string vectors_;
  std::string first_model_digest_;
  std::string first_vector_digest_;
  std::string model_digest_;
  std::string vector_digest_;
  bool is_changed_ = false;
  std::string new_session_;
  std::string job_;
  std::string page_token_;
};

// In the fields that a request has set.
void Calls::Replace(uint8_t flags, Message* message) const {
  const auto* const reflection = message->GetReflection();
  const auto* const type = message->GetDescriptor();
  const std::string* const sessions[] = {nullptr, &model_, &vectors_, &new_session_};
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    if (field->is_repeated()) continue;
    const std::string* text = nullptr;
    if (field->name() == "session_id") text = sessions[flags & kSessionMask];
    if (field->name() == "job_id" && (flags & kJob) != 0) text = &job_;
    if (field->name() == "page_token" && (flags & kPageToken) != 0) text = &page_token_;
    if (text != nullptr) reflection->SetString(message, field, *text);
  }
}

void Calls::Remember(const Message& reply) {
  const auto* const reflection = reply.GetReflection();
  const auto* const type = reply.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    if (field->is_repeated()) continue;
    if (field->name() == "next_page_token") page_token_ = reflection->GetString(reply, field);
    if (field->name() == "session_id") new_session_ = reflection->GetString(reply, field);
    if (field->name() == "job_id") job_ = reflection->GetString(reply, field);
    if (field->message_type() != nullptr && reflection->HasField(reply, field)) {
      Remember(reflection->GetMessage(reply, field));
    }
  }
}

std::vector<std::string> Calls::Messages(const MethodDescriptor& method, uint8_t flags,
                                         std::string bytes) {
  static auto* const factory = google::protobuf::MessageFactory::generated_factory();
  const std::unique_ptr<Message> message(factory->GetPrototype(method.input_type())->New());
  if (message->ParseFromString(bytes)) {
    Replace(flags, message.get());
    if (method.name() == "ImportSession") {
      auto* const import = static_cast<v1::ImportSessionRequest*>(message.get());
      if (import->has_header()) Replace(flags, import->mutable_header());
    }
    bytes = message->SerializeAsString();
  }
  std::vector<std::string> messages = {std::move(bytes)};
  if (method.name() == "ImportSession" && (flags & kRealExport) != 0) {
    for (std::string& part : server_->Export(model_)) messages.push_back(std::move(part));
  }
  return messages;
}

void Calls::RunOne(FuzzBytes* bytes) {
  const auto service = static_cast<size_t>(bytes->Next());
  const MethodDescriptor& method = *FuzzServer::Method(service, bytes->Next());
  const uint8_t flags = bytes->Next();
  const auto size = static_cast<size_t>(bytes->Next() | bytes->Next() << 8);
  std::vector<std::string> replies;
  const grpc::Status status =
      server_->Call(method, Messages(method, flags, bytes->Piece(size)), &replies);
  is_changed_ = is_changed_ || (status.ok() && LeavesTraces(method));
  if (method.name() == "ForgetSubject") server_->WaitForJobs();
  const std::string model_digest = std::exchange(model_digest_, "");
  const std::string vector_digest = std::exchange(vector_digest_, "");
  Look();
  if (!status.ok() || !IsChange(method)) {
    LETHE_CHECK(model_digest_ == model_digest);
    LETHE_CHECK(vector_digest_ == vector_digest);
  }
  static auto* const factory = google::protobuf::MessageFactory::generated_factory();
  for (const std::string& reply : replies) {
    const std::unique_ptr<Message> message(factory->GetPrototype(method.output_type())->New());
    LETHE_CHECK(message->ParseFromString(reply));
    Remember(*message);
  }
}

void Calls::Run(FuzzBytes* bytes) {
  new_session_.clear();
  job_.clear();
  page_token_.clear();
  for (int i = 0; i < kCallsMax && !bytes->empty(); ++i) RunOne(bytes);
  if (model_digest_ != first_model_digest_) server_->CheckState(model_);
  if (vector_digest_ != first_vector_digest_) server_->CheckState(vectors_);
}

}  // namespace

void FuzzRequest(absl::string_view input) {
  // Made anew only where an input left traces: most are refused.
  static auto* const calls = new std::unique_ptr<Calls>();
  FuzzServer& server = SharedServer();
  if (*calls == nullptr || !(*calls)->IsFresh(server)) {
    server.DeleteSessions();
    *calls = std::make_unique<Calls>(&server);
  }
  FuzzBytes bytes(input);
  (*calls)->Run(&bytes);
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzRequest)
