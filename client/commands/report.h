// FieldTable, RowTable and Format*: how results look to a person.
//
// Equation:  none.
// Shapes:    none.
// Units:     as each function says.
// Requires:  RowTable::Add: as many cells as the header has.
// Rejects:   nothing.
// Effects:   Print writes to the stream given.
// Numerics:  numbers are rounded for reading; --json has them exactly.
// Threads:   compatible.
#ifndef LETHE_CLIENT_COMMANDS_REPORT_H_
#define LETHE_CLIENT_COMMANDS_REPORT_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace lethe::client {

// "label   value" lines, values aligned; values as OneLine makes them.
class FieldTable {
 public:
  void Add(std::string label, absl::string_view value);
  void Print(std::ostream& out) const;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

// A table with a header line, columns aligned, numbers to the right; cells as OneLine makes them.
class RowTable {
 public:
  explicit RowTable(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  void Add(std::vector<std::string> cells);
  size_t num_rows() const { return rows_.size() - 1; }
  void Print(std::ostream& out) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string FormatHex(absl::string_view bytes);
std::string FormatMicroseconds(int64_t duration_us);
std::string FormatByteCount(int64_t num_bytes);
std::string FormatDouble(double value);

// "1 input", "2 inputs".
std::string FormatCount(int64_t count, absl::string_view singular);

// Text for a terminal: control characters other than newline and tab (C0, C1, DEL, line and paragraph
// separators, those of writing direction) and bytes that are not UTF-8 become "?", so that a model's
// answer or a stored input can neither drive the terminal nor pass for our own words.
std::string SafeForTerminal(absl::string_view text);

// Text on one line: those characters, newline and tab as \n, \t, \xNN and \u{N}.
std::string OneLine(absl::string_view text);

// As OneLine, in quotes; quotes and backslashes of the text follow a backslash.
std::string Quoted(absl::string_view text);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_REPORT_H_
