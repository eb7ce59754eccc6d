#include "server/generation/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"

namespace lethe {
namespace {

// The failure function of Knuth, Morris and Pratt.
std::vector<size_t> Borders(absl::string_view pattern) {
  std::vector<size_t> borders(pattern.size(), 0);
  size_t length = 0;
  for (size_t i = 1; i < pattern.size(); ++i) {
    while (length > 0 && pattern[i] != pattern[length]) length = borders[length - 1];
    if (pattern[i] == pattern[length]) ++length;
    borders[i] = length;
  }
  return borders;
}

}  // namespace

absl::StatusOr<StopMatcher> StopMatcher::Create(absl::Span<const std::string> stop_strings) {
  if (stop_strings.size() > kStopStringsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("stop must hold at most ", kStopStringsMax, " strings"));
  }
  StopMatcher matcher;
  for (const std::string& bytes : stop_strings) {
    if (bytes.empty() || bytes.size() > kStopStringBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("stop must hold strings of 1 … ", kStopStringBytesMax, " bytes"));
    }
    Pattern pattern;
    pattern.bytes = bytes;
    pattern.fallback = Borders(bytes);
    matcher.patterns_.push_back(std::move(pattern));
  }
  return matcher;
}

StopMatcher::Output StopMatcher::Append(absl::string_view bytes) {
  Output output;
  for (const char byte : bytes) {
    if (stop_index_.has_value()) break;
    held_.push_back(byte);
    size_t num_matched_bytes = 0;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      Pattern& pattern = patterns_[i];
      while (pattern.matched > 0 && pattern.bytes[pattern.matched] != byte) {
        pattern.matched = pattern.fallback[pattern.matched - 1];
      }
      if (pattern.bytes[pattern.matched] == byte) ++pattern.matched;
      if (pattern.matched == pattern.bytes.size() && pattern.matched > num_matched_bytes) {
        stop_index_ = i;
        num_matched_bytes = pattern.matched;
      }
    }
    if (stop_index_.has_value()) {
      // After a Recompute the match may reach back into delivered bytes, which held_ lacks.
      held_.resize(held_.size() - std::min(held_.size(), num_matched_bytes));
      output.bytes += held_;
      held_.clear();
    }
  }
  size_t num_kept = 0;
  if (!stop_index_.has_value()) {
    for (const Pattern& pattern : patterns_) num_kept = std::max(num_kept, pattern.matched);
  }
  if (held_.size() > num_kept) {
    output.bytes.append(held_, 0, held_.size() - num_kept);
    held_.erase(0, held_.size() - num_kept);
  }
  output.stop_index = stop_index_;
  return output;
}

std::string StopMatcher::Finish() {
  std::string rest = std::move(held_);
  Restart();
  return rest;
}

StopMatcher::Output StopMatcher::Recompute(absl::string_view retained_bytes, size_t num_delivered) {
  LETHE_CHECK(num_delivered <= retained_bytes.size());
  Restart();
  // What was delivered only moves the patterns on; it leaves held_ without being returned again.
  Append(retained_bytes.substr(0, num_delivered));
  held_.clear();
  return Append(retained_bytes.substr(num_delivered));
}

void StopMatcher::Restart() {
  held_.clear();
  stop_index_.reset();
  for (Pattern& pattern : patterns_) pattern.matched = 0;
}

}  // namespace lethe
