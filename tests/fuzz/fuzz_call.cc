#include "tests/fuzz/fuzz_call.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "kernels/base/check.h"
#include "tests/integration/server_testing.h"

namespace lethe::fuzz {
namespace {

grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  LETHE_CHECK(buffer.DumpToSingleSlice(&slice).ok());
  return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
}

bool IsReason(const std::string& reason) {
  return !reason.empty() && reason.size() <= 63 &&
         std::all_of(reason.begin(), reason.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
         });
}

// What a caller can bring about. An export that is damaged is DATA_LOSS.
bool IsDocumented(grpc::StatusCode code, const std::string& method) {
  switch (code) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
      return true;
    case grpc::StatusCode::DATA_LOSS:
      return method == "ImportSession";
    default:
      return false;
  }
}

// Runs one operation of a generic call to its end.
class GenericCall {
 public:
  GenericCall(grpc::GenericStub* stub, const std::string& name)
      : call_(stub->PrepareCall(&context_, name, &queue_)) {
    call_->StartCall(this);
    Wait();
  }
  ~GenericCall() {
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  bool Write(const std::string& bytes) {
    call_->Write(BufferOf(bytes), this);
    return Wait();
  }
  bool WritesDone() {
    call_->WritesDone(this);
    return Wait();
  }
  bool Read(std::string* bytes) {
    grpc::ByteBuffer buffer;
    call_->Read(&buffer, this);
    if (!Wait()) return false;
    *bytes = BytesOf(buffer);
    return true;
  }
  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, this);
    Wait();
    return status;
  }

 private:
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    LETHE_CHECK(queue_.Next(&tag, &ok));
    return ok;
  }

  testing::Context context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

}  // namespace

grpc::Status CallBytes(const std::shared_ptr<grpc::Channel>& channel,
                       const google::protobuf::MethodDescriptor& method,
                       const std::vector<std::string>& messages,
                       std::vector<std::string>* replies) {
  grpc::GenericStub stub(channel);
  GenericCall call(&stub, absl::StrCat("/", method.service()->full_name(), "/", method.name()));
  for (const std::string& message : messages) {
    if (!call.Write(message)) break;
  }
  call.WritesDone();
  std::string reply;
  while (call.Read(&reply)) replies->push_back(std::move(reply));
  return call.Finish();
}

void CheckError(const std::string& method, const grpc::Status& status) {
  const v1::ErrorInfo info = testing::DetailOf(status);
  bool repeats_content = absl::StrContains(status.error_message(), kContentCanary);
  for (const auto& [key, value] : info.metadata()) {
    repeats_content = repeats_content || absl::StrContains(value, kContentCanary);
  }
  const bool is_proper = IsDocumented(status.error_code(), method) && IsReason(info.reason()) &&
                         info.domain() == "lethe.dev" && !repeats_content;
  if (!is_proper) {
    std::fprintf(stderr, "%s answers code %d, reason %s: %s\n", method.c_str(),
                 static_cast<int>(status.error_code()), info.reason().c_str(),
                 status.error_message().c_str());
  }
  LETHE_CHECK(is_proper);
}

}  // namespace lethe::fuzz
