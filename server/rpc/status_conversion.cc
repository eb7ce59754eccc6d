#include "server/rpc/status_conversion.h"

#include <string>

#include <google/protobuf/any.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "lethe/v1/types.pb.h"
#include "server/error/error_info.h"

namespace lethe {
namespace {

// google.rpc.Status is not in Debian's packages: code = 1 (int32), message = 2 (string), details =
// 3 (Any).
std::string SerializeRpcStatus(int code, const std::string& message,
                               const google::protobuf::Any& detail) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream out(&stream);
  const auto write_bytes = [&out](uint32_t tag, const std::string& value) {
    out.WriteTag(tag);
    out.WriteVarint32(static_cast<uint32_t>(value.size()));
    out.WriteString(value);
  };
  out.WriteTag(8);
  out.WriteVarint32(static_cast<uint32_t>(code));
  write_bytes(18, message);
  write_bytes(26, detail.SerializeAsString());
  out.Trim();
  return bytes;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const ErrorInfo info = ErrorInfoOf(status);
  v1::ErrorInfo detail;
  detail.set_reason(info.reason);
  detail.set_domain(kErrorDomain);
  for (const auto& [key, value] : info.metadata) (*detail.mutable_metadata())[key] = value;
  google::protobuf::Any any;
  any.set_type_url("type.googleapis.com/google.rpc.ErrorInfo");
  any.set_value(detail.SerializeAsString());
  const std::string message(status.message());
  const int code = static_cast<int>(status.code());
  return grpc::Status(static_cast<grpc::StatusCode>(code), message,
                      SerializeRpcStatus(code, message, any));
}

}  // namespace lethe
