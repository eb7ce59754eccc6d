#include "server/rpc/trace_context.h"

#include <algorithm>

namespace lethe {
namespace {

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsId(absl::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != absl::string_view::npos;
}

}  // namespace

std::optional<TraceContext> TraceContext::Parse(absl::string_view traceparent) {
  if (traceparent.size() < kTraceparentSize) return std::nullopt;
  const absl::string_view version = traceparent.substr(0, 2);
  const absl::string_view trace_id = traceparent.substr(3, 32);
  const absl::string_view parent_id = traceparent.substr(36, 16);
  if (traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-' ||
      !IsHex(version) || version == "ff" || !IsId(trace_id) || !IsId(parent_id) ||
      !IsHex(traceparent.substr(53, 2))) {
    return std::nullopt;
  }
  if (traceparent.size() > kTraceparentSize &&
      (version == "00" || traceparent[kTraceparentSize] != '-')) {
    return std::nullopt;
  }
  return TraceContext{std::string(trace_id), std::string(parent_id)};
}

}  // namespace lethe
