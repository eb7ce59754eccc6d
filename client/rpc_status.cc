#include "client/rpc_status.h"

#include <cstdint>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "client/client.h"
#include "google/protobuf/any.pb.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"

namespace lethe::client {
namespace {

using ::google::protobuf::internal::WireFormatLite;

// google.rpc.Status, field 3: repeated google.protobuf.Any details. Debian ships no google/rpc protos,
// and this one field is all that is needed.
constexpr int kDetailsField = 3;

// The first detail of type kErrorInfoType in serialised google.rpc.Status, or "".
std::string FindErrorInfo(const std::string& details) {
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(details.data()),
                                               static_cast<int>(details.size()));
  while (const uint32_t tag = input.ReadTag()) {
    if (WireFormatLite::GetTagFieldNumber(tag) != kDetailsField ||
        WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&input, tag)) {
        return "";
      }
      continue;
    }
    std::string bytes;
    uint32_t size = 0;
    google::protobuf::Any any;
    if (!input.ReadVarint32(&size) || !input.ReadString(&bytes, static_cast<int>(size)) ||
        !any.ParseFromString(bytes)) {
      return "";
    }
    if (any.type_url() == kErrorInfoType) {
      return any.value();
    }
  }
  return "";
}

// As gRPC 1.51 and later begin the message of a call that was never sent.
constexpr char kNeverSent[] = "failed to connect";

bool MayHaveTakenEffect(const absl::Status& status) {
  if (status.GetPayload(kErrorInfoType).has_value()) return false;
  return absl::IsDeadlineExceeded(status) ||
         (absl::IsUnavailable(status) && !absl::StartsWith(status.message(), kNeverSent));
}

}  // namespace

absl::Status StatusFromRpc(const grpc::Status& status) {
  if (status.ok()) {
    return absl::OkStatus();
  }
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  result.SetPayload(kRpcStatusType, absl::Cord());
  const std::string info = FindErrorInfo(status.error_details());
  v1::ErrorInfo parsed;
  if (!info.empty() && parsed.ParseFromString(info)) {
    result.SetPayload(kErrorInfoType, absl::Cord(info));
  }
  return result;
}

absl::Status StatusFromRpc(const grpc::Status& status, const google::protobuf::Message& request) {
  absl::Status result = StatusFromRpc(status);
  const auto* id = request.GetDescriptor()->FindFieldByName("request_id");
  if (id != nullptr && MayHaveTakenEffect(result)) {
    result.SetPayload(kOutcomeUnknownType,
                      absl::Cord(request.GetReflection()->GetString(request, id)));
  }
  return result;
}

}  // namespace lethe::client
