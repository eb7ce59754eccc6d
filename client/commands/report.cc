#include "client/commands/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

#include "kernels/base/number_text.h"

namespace lethe::client {
namespace {

bool LooksNumeric(const std::string& cell) {
  return !cell.empty() && (absl::ascii_isdigit(static_cast<unsigned char>(cell[0])) ||
                           (cell[0] == '-' && cell.size() > 1));
}

constexpr uint32_t kNoCodePoint = 0xffffffff;

struct CodePoint {
  uint32_t value = kNoCodePoint;
  size_t num_bytes = 1;
};

// The first character of a text that is not empty; kNoCodePoint for a byte that begins none in UTF-8.
CodePoint FirstCodePoint(absl::string_view text) {
  const uint32_t lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t num_bytes = lead >= 0xf0 ? 4 : (lead >= 0xe0 ? 3 : 2);
  if (lead < 0xc2 || lead > 0xf4 || text.size() < num_bytes) return {};
  uint32_t value = lead & (0xffu >> (num_bytes + 1));
  for (size_t i = 1; i < num_bytes; ++i) {
    const uint32_t byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0u) != 0x80u) return {};
    value = (value << 6) | (byte & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0x80, 0x800, 0x10000};  // in fewer bytes below
  if (value < kLeast[num_bytes - 2]) return {};
  return {value, num_bytes};
}

// Characters that are no text: they move the cursor, break lines or turn the writing direction.
bool IsControl(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x061c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == kNoCodePoint;
}

std::string Escape(uint32_t c, char first_byte) {
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  return c < 0x80 || c == kNoCodePoint
             ? absl::StrFormat("\\x%02x",
                               static_cast<unsigned>(static_cast<unsigned char>(first_byte)))
             : absl::StrFormat("\\u{%x}", c);
}

}  // namespace

void FieldTable::Add(std::string label, absl::string_view value) {
  fields_.emplace_back(std::move(label), OneLine(value));
}

void RowTable::Add(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = OneLine(cell);
  rows_.push_back(std::move(cells));
}

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
  std::string safe;
  while (!text.empty()) {
    const CodePoint c = FirstCodePoint(text);
    const bool is_safe = !IsControl(c.value) || c.value == '\n' || c.value == '\t';
    absl::StrAppend(&safe, is_safe ? text.substr(0, c.num_bytes) : "?");
    text.remove_prefix(c.num_bytes);
  }
  return safe;
}

std::string OneLine(absl::string_view text) {
  std::string line;
  while (!text.empty()) {
    const CodePoint c = FirstCodePoint(text);
    absl::StrAppend(&line, IsControl(c.value) ? Escape(c.value, text[0])
                                              : std::string(text.substr(0, c.num_bytes)));
    text.remove_prefix(c.num_bytes);
  }
  return line;
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", OneLine(absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}})),
                      "\"");
}

}  // namespace lethe::client
