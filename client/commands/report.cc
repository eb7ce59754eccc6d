#include "client/commands/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "kernels/base/number_text.h"

namespace lethe::client {
namespace {

bool LooksNumeric(const std::string& cell) {
  return !cell.empty() && (absl::ascii_isdigit(static_cast<unsigned char>(cell[0])) ||
                           (cell[0] == '-' && cell.size() > 1));
}

bool IsControl(unsigned char byte) {
  return (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
}

}  // namespace

void FieldTable::Print(std::ostream& out) const {
  size_t width = 0;
  for (const auto& [label, value] : fields_) {
    width = std::max(width, label.size());
  }
  for (const auto& [label, value] : fields_) {
    out << "  " << label << std::string(width - label.size() + 2, ' ') << value << "\n";
  }
  out << std::flush;
}

void RowTable::Print(std::ostream& out) const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const std::vector<std::string>& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], row[c].size());
    }
  }
  for (const std::vector<std::string>& row : rows_) {
    std::string line = "  ";
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - row[c].size(), ' ');
      // The header follows its column, which the first row below it represents.
      const bool right = LooksNumeric(&row == &rows_[0] && rows_.size() > 1 ? rows_[1][c] : row[c]);
      absl::StrAppend(&line, right ? padding : "", row[c], right ? "" : padding, "  ");
    }
    out << absl::StripTrailingAsciiWhitespace(line) << "\n";
  }
  out << std::flush;
}

std::string FormatHex(absl::string_view bytes) { return absl::BytesToHexString(bytes); }

std::string FormatMicroseconds(int64_t duration_us) {
  const double us = static_cast<double>(duration_us);
  if (duration_us < 1000) {
    return absl::StrCat(duration_us, " us");
  }
  return duration_us < 1'000'000 ? absl::StrFormat("%.1f ms", us / 1e3)
                                 : absl::StrFormat("%.2f s", us / 1e6);
}

std::string FormatByteCount(int64_t num_bytes) {
  const double bytes = static_cast<double>(num_bytes);
  if (num_bytes < 1024) {
    return absl::StrCat(num_bytes, " B");
  }
  return num_bytes < (1 << 20) ? absl::StrFormat("%.1f KiB", bytes / 1024)
                               : absl::StrFormat("%.1f MiB", bytes / (1 << 20));
}

std::string FormatDouble(double value) {
  return value == std::trunc(value) ? NumberText(value) : absl::StrFormat("%.6g", value);
}

std::string FormatCount(int64_t count, absl::string_view singular) {
  return absl::StrCat(count, " ", singular, count == 1 ? "" : "s");
}

std::string SafeForTerminal(absl::string_view text) {
  std::string safe(text);
  std::replace_if(
      safe.begin(), safe.end(), [](char c) { return IsControl(static_cast<unsigned char>(c)); },
      '?');
  return safe;
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(text), "\"");
}

}  // namespace lethe::client
