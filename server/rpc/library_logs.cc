#include "server/rpc/library_logs.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include "server/diagnostics/log.h"

namespace lethe {
namespace {

thread_local std::string invalid_utf8_field;

// protobuf 3.21 says which string field made a parse fail only in its log: "String field
// 'lethe.v1.AppendRequest.subject' contains invalid UTF-8 data when parsing a protocol buffer. …".
std::string InvalidUtf8Field(absl::string_view message) {
  constexpr absl::string_view kBefore = "String field '";
  constexpr absl::string_view kAfter = "' contains invalid UTF-8 data when parsing";
  const size_t end = message.find(kAfter);
  if (!absl::ConsumePrefix(&message, kBefore) || end == absl::string_view::npos) return "";
  absl::string_view path = message.substr(0, end - kBefore.size());
  absl::ConsumePrefix(&path, "lethe.v1.");
  const size_t dot = path.rfind('.');
  if (dot == absl::string_view::npos) return std::string(path);
  // The one nested message of a request that holds a string.
  const bool nested = path.substr(0, dot) == "ForgetSelection";
  return absl::StrCat(nested ? "selection." : "", path.substr(dot + 1));
}

absl::string_view FileName(absl::string_view path) { return path.substr(path.rfind('/') + 1); }

void OnProtobufLog(google::protobuf::LogLevel level, const char* file, int line,
                   const std::string& message) {
  if (level == google::protobuf::LOGLEVEL_FATAL) {  // it aborts next
    LogError(absl::StrCat("protobuf failed at ", FileName(file), ":", line));
    return;
  }
  std::string field = InvalidUtf8Field(message);
  if (!field.empty()) {
    invalid_utf8_field = std::move(field);
    return;
  }
  LogDebug(absl::StrCat("protobuf: ", FileName(file), ":", line));
}

void OnGrpcLog(gpr_log_func_args* args) {
  if (absl::StartsWith(args->message, "assertion failed")) {  // it aborts next
    LogError(absl::StrCat("grpc failed at ", FileName(args->file), ":", args->line));
    return;
  }
  LogDebug(absl::StrCat("grpc: ", FileName(args->file), ":", args->line, ": ", args->message));
}

}  // namespace

void TakeLibraryLogs() {
  static const bool taken = [] {
    google::protobuf::SetLogHandler(&OnProtobufLog);
    gpr_set_log_function(&OnGrpcLog);
    return true;
  }();
  static_cast<void>(taken);
}

std::string TakeInvalidUtf8Field() { return std::exchange(invalid_utf8_field, {}); }

}  // namespace lethe
