#include "audit/certificate/id_ranges.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>

#include "audit/log/decimal.h"
#include "kernels/base/check.h"

namespace lethe::audit {

bool IsStrictlyAscending(absl::Span<const uint64_t> token_ids) {
  return std::adjacent_find(token_ids.begin(), token_ids.end(), std::greater_equal<>()) ==
         token_ids.end();
}

bool AreDisjoint(absl::Span<const uint64_t> a, absl::Span<const uint64_t> b) {
  std::vector<uint64_t> common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
  return common.empty();
}

bool IsSubset(absl::Span<const uint64_t> part, absl::Span<const uint64_t> whole) {
  return std::includes(whole.begin(), whole.end(), part.begin(), part.end());
}

Json TokenIdRangesJson(absl::Span<const uint64_t> token_ids) {
  LETHE_CHECK(IsStrictlyAscending(token_ids));
  Json::Array ranges;
  for (size_t begin = 0; begin < token_ids.size();) {
    size_t last = begin;
    while (last + 1 < token_ids.size() && token_ids[last + 1] == token_ids[last] + 1) ++last;
    ranges.push_back(Json::MakeArray({JsonU64(token_ids[begin]), JsonU64(token_ids[last])}));
    begin = last + 1;
  }
  return Json::MakeArray(std::move(ranges));
}

std::vector<uint64_t> ReadTokenIds(absl::string_view key, uint64_t ids_max, JsonReader* reader) {
  std::vector<uint64_t> token_ids;
  for (const std::vector<std::string>& range : reader->StringArrays(key)) {
    const absl::StatusOr<uint64_t> first =
        range.size() == 2 ? ParseDecimal(range[0]) : absl::InvalidArgumentError("");
    const absl::StatusOr<uint64_t> last =
        range.size() == 2 ? ParseDecimal(range[1]) : absl::InvalidArgumentError("");
    if (!first.ok() || !last.ok() || *first > *last) {
      reader->Fail(key, "want ranges of two decimal ids in order");
      return {};
    }
    if (!token_ids.empty() && (*first <= token_ids.back() || *first - token_ids.back() < 2)) {
      reader->Fail(key, "want ascending ranges with gaps between them");
      return {};
    }
    if (*last - *first >= ids_max - token_ids.size()) {
      reader->Fail(key, "too many ids");
      return {};
    }
    for (uint64_t token_id = *first;; ++token_id) {
      token_ids.push_back(token_id);
      if (token_id == *last) break;
    }
  }
  return token_ids;
}

}  // namespace lethe::audit
