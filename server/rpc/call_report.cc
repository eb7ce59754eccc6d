#include "server/rpc/call_report.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "server/diagnostics/log.h"

namespace lethe {
namespace {

constexpr char kTraceparent[] = "traceparent";

}  // namespace

CallReport::CallReport(const char* method, grpc::ServerContext* context, const ServerCore* core)
    : method_(method), core_(core) {
  const auto& metadata = context->client_metadata();
  const auto found = metadata.find(kTraceparent);
  if (found == metadata.end()) return;
  const absl::string_view text(found->second.data(), found->second.size());
  trace_ = TraceContext::Parse(text);
  // Not what a later version may have behind it.
  if (trace_)
    context->AddInitialMetadata(kTraceparent, std::string(text.substr(0, kTraceparentSize)));
}

void CallReport::End(const absl::Status& status) const {
  const int64_t duration_us = std::chrono::duration_cast<std::chrono::microseconds>(
                                  std::chrono::steady_clock::now() - start_)
                                  .count();
  core_->metrics->CountCall(method_, status, duration_us);
  const std::string code = absl::StatusCodeToString(status.code());
  std::string line = absl::StrCat(method_, " ", code, " ", duration_us, " us");
  LogFields fields = {
      {"method", method_}, {"code", code}, {"duration_us", absl::StrCat(duration_us)}};
  if (trace_) {
    absl::StrAppend(&line, " trace ", trace_->trace_id);
    fields.emplace_back("trace_id", trace_->trace_id);
    fields.emplace_back("parent_id", trace_->parent_id);
  }
  if (status.code() == absl::StatusCode::kInternal ||
      status.code() == absl::StatusCode::kDataLoss) {
    LogError(absl::StrCat(line, ": ", status.message()), fields);
  } else {
    LogDebug(line, fields);
  }
}

}  // namespace lethe
