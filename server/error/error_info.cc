#include "server/error/error_info.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/byte_io.h"

namespace lethe {
namespace {

constexpr char kPayloadUrl[] = "lethe.dev/server/error_info";

absl::Status ParseErrorInfo(absl::string_view bytes, ErrorInfo* info) {
  ByteReader reader(bytes);
  uint64_t num_entries = 0;
  if (absl::Status status = reader.String(&info->reason); !status.ok()) return status;
  if (absl::Status status = reader.U64(&num_entries); !status.ok()) return status;
  for (uint64_t i = 0; i < num_entries; ++i) {
    std::pair<std::string, std::string> entry;
    if (absl::Status status = reader.String(&entry.first); !status.ok()) return status;
    if (absl::Status status = reader.String(&entry.second); !status.ok()) return status;
    info->metadata.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WithErrorInfo(absl::Status status, const ErrorInfo& info) {
  if (status.ok()) return status;
  ByteWriter writer;
  writer.String(info.reason);
  writer.U64(info.metadata.size());
  for (const auto& [key, value] : info.metadata) {
    writer.String(key);
    writer.String(value);
  }
  status.SetPayload(kPayloadUrl, absl::Cord(writer.Take()));
  return status;
}

std::optional<ErrorInfo> GetErrorInfo(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayloadUrl);
  if (!payload.has_value()) return std::nullopt;
  ErrorInfo info;
  if (!ParseErrorInfo(std::string(*payload), &info).ok()) return std::nullopt;
  return info;
}

ErrorInfo ErrorInfoOf(const absl::Status& status) {
  return GetErrorInfo(status).value_or(ErrorInfo{StatusCodeReason(status.code()), {}});
}

absl::Status WithDefaultReason(absl::Status status, absl::string_view reason) {
  if (status.ok() || GetErrorInfo(status).has_value()) return status;
  return WithErrorInfo(std::move(status), {std::string(reason), {}});
}

absl::Status InvalidFieldError(absl::string_view field, absl::string_view accepted) {
  return WithErrorInfo(
      absl::InvalidArgumentError(absl::StrCat(field, ": want ", accepted)),
      {"INVALID_FIELD", {{"field", std::string(field)}, {"accepted", std::string(accepted)}}});
}

std::string StatusCodeReason(absl::StatusCode code) { return absl::StatusCodeToString(code); }

}  // namespace lethe
