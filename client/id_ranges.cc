#include "client/id_ranges.h"

#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

// An id is at most 2^64 - 2, so that the end of a range after it is representable.
constexpr uint64_t kIdMax = std::numeric_limits<uint64_t>::max() - 1;

absl::Status BadId(absl::string_view option, uint64_t max, absl::string_view example) {
  return absl::InvalidArgumentError(absl::StrCat(option,
                                                 ": each id must be a whole number from 0 to ", max,
                                                 " without leading zeros, like ", example));
}

// 010 is refused as a number of any option is: some read it as 8.
absl::StatusOr<uint64_t> ParseId(absl::string_view text, const absl::Status& bad) {
  const absl::string_view item = absl::StripAsciiWhitespace(text);
  uint64_t id = 0;
  if (item.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(item[0])) ||
      (item[0] == '0' && item.size() > 1) || !absl::SimpleAtoi(item, &id) || id > kIdMax) {
    return bad;
  }
  return id;
}

}  // namespace

absl::StatusOr<v1::TokenSelection> ParseIds(absl::string_view option, absl::string_view text) {
  const absl::Status bad = BadId(option, kIdMax, "1,2,5-9");
  v1::TokenSelection selection;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(item, absl::MaxSplits('-', 1));
    LETHE_ASSIGN_OR_RETURN(const uint64_t first, ParseId(ends[0], bad));
    if (ends.size() == 1) {
      selection.add_token_ids(first);
      continue;
    }
    LETHE_ASSIGN_OR_RETURN(const uint64_t last, ParseId(ends[1], bad));
    if (last < first) {
      return absl::InvalidArgumentError(
          absl::StrCat(option, ": a range must not end before its start, like 5-9"));
    }
    v1::TokenRange* range = selection.add_ranges();
    range->set_first(first);
    range->set_end(last + 1);
  }
  return selection;
}

absl::StatusOr<v1::TokenRange> ParseRange(absl::string_view option, absl::string_view text) {
  const absl::Status bad = BadId(option, kIdMax, "5:10");
  const std::vector<absl::string_view> ends = absl::StrSplit(text, ':');
  if (ends.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat(option, ": want A:B, the ids A to B - 1"));
  }
  v1::TokenRange range;
  LETHE_ASSIGN_OR_RETURN(const uint64_t first, ParseId(ends[0], bad));
  LETHE_ASSIGN_OR_RETURN(const uint64_t end, ParseId(ends[1], bad));
  if (end <= first) {
    return absl::InvalidArgumentError(absl::StrCat(option, ": in A:B the end B must be above A"));
  }
  range.set_first(first);
  range.set_end(end);
  return range;
}

absl::StatusOr<std::vector<int32_t>> ParseVocabIds(absl::string_view option,
                                                   absl::string_view text) {
  constexpr int32_t kVocabIdMax = std::numeric_limits<int32_t>::max();
  const absl::Status bad = BadId(option, kVocabIdMax, "72,101,108");
  std::vector<int32_t> vocab_ids;
  for (const absl::string_view item : absl::StrSplit(text, ',')) {
    LETHE_ASSIGN_OR_RETURN(const uint64_t id, ParseId(item, bad));
    if (id > kVocabIdMax) return bad;
    vocab_ids.push_back(static_cast<int32_t>(id));
  }
  return vocab_ids;
}

std::string FormatRange(const v1::TokenRange& range) {
  if (range.end() <= range.first()) {
    return "none";
  }
  return range.end() - range.first() == 1 ? absl::StrCat(range.first())
                                          : absl::StrCat(range.first(), "-", range.end() - 1);
}

std::string FormatRanges(const google::protobuf::RepeatedPtrField<v1::TokenRange>& ranges) {
  std::string text;
  v1::TokenRange joined;
  bool any = false;
  for (const v1::TokenRange& range : ranges) {
    if (any && range.first() == joined.end()) {
      joined.set_end(range.end());
      continue;
    }
    if (any) {
      absl::StrAppend(&text, FormatRange(joined), ", ");
    }
    joined = range;
    any = true;
  }
  return any ? absl::StrCat(text, FormatRange(joined)) : "none";
}

}  // namespace lethe::client
