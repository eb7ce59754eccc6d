#include "server/limits/limits.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "server/error/error_info.h"

namespace lethe {
namespace {

ErrorInfo InfoOf(const LimitHit& hit) {
  ErrorInfo info{std::string(hit.reason),
                 {{"limit", std::string(absl::StripPrefix(hit.option, "--"))},
                  {"max", absl::StrCat(hit.max)}}};
  if (hit.got >= 0) info.metadata.emplace_back("got", absl::StrCat(hit.got));
  return info;
}

}  // namespace

absl::Status LimitError(const LimitHit& hit, absl::string_view message) {
  return WithErrorInfo(
      absl::ResourceExhaustedError(absl::StrCat(message, " (", hit.option, " ", hit.max, ")")),
      InfoOf(hit));
}

absl::Status TooLargeError(const LimitHit& hit, absl::string_view field, absl::string_view unit) {
  ErrorInfo info = InfoOf(hit);
  info.metadata.emplace_back("field", std::string(field));
  return WithErrorInfo(
      absl::InvalidArgumentError(absl::StrCat(field, ": want at most ", hit.max, " ", unit, " (",
                                              hit.option, "), got ", hit.got)),
      info);
}

}  // namespace lethe
