#include "server/vector_session/vector_rows.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace lethe {
namespace {

constexpr double kComponentMax = 0x1.0p400;  // as svdd::CheckKeys

}  // namespace

absl::Status CheckVectorRows(absl::string_view field, absl::Span<const double> rows,
                             int64_t width) {
  if (rows.empty() || static_cast<int64_t>(rows.size()) % width != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": want rows of ", width, " numbers, at least one"));
  }
  for (const double component : rows) {
    // Written so that NaN fails.
    if (!(std::fabs(component) <= kComponentMax)) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": want finite numbers of at most 2^400 in magnitude"));
    }
  }
  return absl::OkStatus();
}

void EraseRows(absl::Span<const int64_t> ranks, size_t width, WipedVector<double>* rows) {
  if (width == 0 || ranks.empty()) return;
  auto to = rows->begin() + ranks[0] * static_cast<int64_t>(width);
  for (size_t k = 0; k < ranks.size(); ++k) {
    const auto from = rows->begin() + (ranks[k] + 1) * static_cast<int64_t>(width);
    const auto end = k + 1 < ranks.size()
                         ? rows->begin() + ranks[k + 1] * static_cast<int64_t>(width)
                         : rows->end();
    to = std::copy(from, end, to);
  }
  WipeFrom(rows, static_cast<size_t>(to - rows->begin()));
}

void InsertRows(absl::Span<const int64_t> ranks, absl::Span<const double> taken, size_t width,
                WipedVector<double>* rows) {
  if (width == 0) return;
  WipedVector<double> all;
  all.reserve(rows->size() + taken.size());
  auto next = rows->begin();
  for (size_t k = 0; k < ranks.size(); ++k) {
    const auto before = ranks[k] - static_cast<int64_t>(all.size() / width);
    const auto end = next + before * static_cast<int64_t>(width);
    all.insert(all.end(), next, end);
    next = end;
    const absl::Span<const double> row = taken.subspan(k * width, width);
    all.insert(all.end(), row.begin(), row.end());
  }
  all.insert(all.end(), next, rows->end());
  rows->swap(all);
}

}  // namespace lethe
