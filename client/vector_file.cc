#include "client/vector_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/npy_header.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

constexpr char kByteOrderMark[] = "\xef\xbb\xbf";

absl::Status TooMany(absl::string_view name) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": want at most ", kVectorNumbersMax, " numbers"));
}

bool IsAcceptable(double value) {
  return std::fabs(value) <= kVectorMagnitudeMax;  // false for NaN
}

// A decimal number: absl also reads nan, inf and hexadecimal.
bool ParseDecimal(absl::string_view word, double* value) {
  const bool plain = std::all_of(word.begin(), word.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c)) || absl::StrContains("+-.eE", c);
  });
  return plain && absl::SimpleAtod(word, value);
}

// Reads a text line by line into a matrix.
class TextReader {
 public:
  explicit TextReader(absl::string_view name) : name_(name) {}

  absl::Status ReadLine(absl::string_view line) {
    ++line_;
    column_ = 0;
    line = line.substr(0, line.find('#'));
    const size_t before = matrix_.values.size();
    bool after_comma = false;
    for (line = absl::StripLeadingAsciiWhitespace(line); !line.empty();) {
      const size_t end = std::min(line.find_first_of(", \t\r\v\f"), line.size());
      LETHE_RETURN_IF_ERROR(ReadWord(line.substr(0, end)));
      line = absl::StripLeadingAsciiWhitespace(line.substr(end));
      after_comma = absl::ConsumePrefix(&line, ",");
      line = absl::StripLeadingAsciiWhitespace(line);
    }
    if (after_comma) LETHE_RETURN_IF_ERROR(ReadWord(""));
    return EndRow(static_cast<int64_t>(matrix_.values.size() - before));
  }

  absl::StatusOr<VectorMatrix> Finish() && {
    if (matrix_.num_rows == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(name_, ": holds no numbers; want one row of numbers a line"));
    }
    return std::move(matrix_);
  }

 private:
  absl::Status Bad(absl::string_view want) const {
    return absl::InvalidArgumentError(
        absl::StrCat(name_, ": line ", line_, ", column ", column_, ": want ", want));
  }

  absl::Status ReadWord(absl::string_view word) {
    ++column_;
    double value = 0;
    if (!ParseDecimal(word, &value)) {
      return Bad(
          "a decimal number like -1.5e3, separated from the next by white space or one comma (a "
          "header line or other comment begins with #)");
    }
    if (!IsAcceptable(value)) return Bad("a number of at most 2^400 in magnitude");
    if (static_cast<int64_t>(matrix_.values.size()) == kVectorNumbersMax) return TooMany(name_);
    matrix_.values.push_back(value);
    return absl::OkStatus();
  }

  absl::Status EndRow(int64_t num_columns) {
    if (num_columns == 0) return absl::OkStatus();
    if (matrix_.num_rows == 0) matrix_.num_columns = num_columns;
    if (num_columns != matrix_.num_columns) {
      return absl::InvalidArgumentError(
          absl::StrCat(name_, ": line ", line_, ": want ", matrix_.num_columns,
                       " numbers like the first row, got ", num_columns));
    }
    ++matrix_.num_rows;
    return absl::OkStatus();
  }

  const absl::string_view name_;
  int64_t line_ = 0;
  int64_t column_ = 0;
  VectorMatrix matrix_;
};

// The little-endian number at `bytes`, of 4 or 8 bytes.
double ReadNumber(const char* bytes, size_t size) {
  uint64_t bits = 0;
  for (size_t i = size; i-- > 0;) bits = bits << 8 | static_cast<unsigned char>(bytes[i]);
  if (size == sizeof(float)) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  return std::bit_cast<double>(bits);
}

}  // namespace

absl::StatusOr<VectorMatrix> ParseTextVectors(absl::string_view name, absl::string_view text) {
  absl::ConsumePrefix(&text, kByteOrderMark);
  TextReader reader(name);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    LETHE_RETURN_IF_ERROR(reader.ReadLine(text.substr(0, end)));
    text.remove_prefix(end == absl::string_view::npos ? text.size() : end + 1);
  }
  return std::move(reader).Finish();
}

absl::StatusOr<VectorMatrix> ParseNpyVectors(absl::string_view name, absl::string_view bytes) {
  const absl::StatusOr<NpyHeader> header = ParseNpyHeader(bytes);
  if (!header.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", header.status().message()));
  }
  VectorMatrix matrix;
  matrix.num_rows = header->num_rows;
  matrix.num_columns = header->num_columns;
  // Written so that the product cannot overflow.
  if (matrix.num_rows > kVectorNumbersMax / matrix.num_columns) return TooMany(name);
  const auto count = static_cast<size_t>(matrix.num_rows * matrix.num_columns);
  const absl::string_view data = bytes.substr(header->data_offset);
  if (data.size() != count * header->item_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": want ", count * header->item_bytes,
                                                   " bytes of data after the header, got ",
                                                   data.size()));
  }
  matrix.values.resize(count);
  for (size_t i = 0; i < count; ++i) {
    matrix.values[i] = ReadNumber(data.data() + i * header->item_bytes, header->item_bytes);
    if (!IsAcceptable(matrix.values[i])) {
      const auto columns = static_cast<size_t>(matrix.num_columns);
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": row ", i / columns + 1, ", column ", i % columns + 1,
                       ": want a finite number of at most 2^400 in magnitude"));
    }
  }
  return matrix;
}

absl::StatusOr<VectorMatrix> ParseVectors(absl::string_view name, absl::string_view bytes) {
  return absl::StartsWith(bytes, kNpyMagic) ? ParseNpyVectors(name, bytes)
                                            : ParseTextVectors(name, bytes);
}

}  // namespace lethe::client
