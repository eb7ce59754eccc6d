#include "client/npy_header.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

constexpr size_t kVersionBytes = 2;
constexpr size_t kDimensionsMax = 2;
constexpr char kWantDtype[] = "dtype: want '<f8' or '<f4' (array.astype('<f8') gives it)";

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("not a .npy file that can be read: ", what));
}

absl::Status BadHeader() { return Bad("damaged header"); }

uint32_t ReadLittleEndian(absl::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// Reads the Python dictionary, of the few literals that stand in it, from its front.
class DictionaryReader {
 public:
  explicit DictionaryReader(absl::string_view text) : text_(text) {}

  bool Consume(absl::string_view token) {
    text_ = absl::StripLeadingAsciiWhitespace(text_);
    return absl::ConsumePrefix(&text_, token);
  }

  absl::StatusOr<absl::string_view> String() {
    if (!Consume("'")) return BadHeader();
    const size_t end = text_.find('\'');
    if (end == absl::string_view::npos) return BadHeader();
    const absl::string_view value = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    return value;
  }

  absl::StatusOr<bool> Boolean() {
    if (Consume("True")) return true;
    if (Consume("False")) return false;
    return BadHeader();
  }

  // "(3, 4)", "(3,)", "()".
  absl::StatusOr<std::vector<int64_t>> Tuple() {
    if (!Consume("(")) return BadHeader();
    std::vector<int64_t> items;
    for (bool more = !Consume(")"); more;) {
      LETHE_ASSIGN_OR_RETURN(const int64_t item, WholeNumber());
      items.push_back(item);
      LETHE_ASSIGN_OR_RETURN(more, EndItem(")"));
    }
    return items;
  }

  // After an item: whether another one follows before `close`.
  absl::StatusOr<bool> EndItem(absl::string_view close) {
    const bool comma = Consume(",");
    if (Consume(close)) return false;
    if (!comma) return BadHeader();
    return true;
  }

  bool AtEnd() { return absl::StripLeadingAsciiWhitespace(text_).empty(); }

 private:
  absl::StatusOr<int64_t> WholeNumber() {
    text_ = absl::StripLeadingAsciiWhitespace(text_);
    size_t length = 0;
    while (length < text_.size() &&
           absl::ascii_isdigit(static_cast<unsigned char>(text_[length]))) {
      ++length;
    }
    int64_t value = 0;
    if (length == 0 || !absl::SimpleAtoi(text_.substr(0, length), &value)) return BadHeader();
    text_.remove_prefix(length);
    return value;
  }

  absl::string_view text_;
};

struct Dictionary {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

absl::Status ReadEntry(DictionaryReader* reader, Dictionary* dictionary) {
  LETHE_ASSIGN_OR_RETURN(const absl::string_view key, reader->String());
  if (!reader->Consume(":")) return BadHeader();
  if (key == "descr") {
    const absl::StatusOr<absl::string_view> descr = reader->String();
    if (!descr.ok()) return Bad(kWantDtype);  // a list: a structured dtype
    dictionary->descr = std::string(*descr);
  } else if (key == "fortran_order") {
    LETHE_ASSIGN_OR_RETURN(dictionary->fortran_order, reader->Boolean());
  } else if (key == "shape") {
    LETHE_ASSIGN_OR_RETURN(dictionary->shape, reader->Tuple());
  } else {
    return BadHeader();
  }
  return absl::OkStatus();
}

absl::StatusOr<Dictionary> ParseDictionary(absl::string_view text) {
  DictionaryReader reader(text);
  Dictionary dictionary;
  if (!reader.Consume("{")) return BadHeader();
  for (bool more = !reader.Consume("}"); more;) {
    LETHE_RETURN_IF_ERROR(ReadEntry(&reader, &dictionary));
    LETHE_ASSIGN_OR_RETURN(more, reader.EndItem("}"));
  }
  if (!dictionary.descr || !dictionary.fortran_order || !dictionary.shape || !reader.AtEnd()) {
    return BadHeader();
  }
  return dictionary;
}

absl::Status SetShape(const std::vector<int64_t>& shape, NpyHeader* header) {
  if (shape.empty() || shape.size() > kDimensionsMax) {
    return Bad("shape: want a 2-d array, or a 1-d one for one row");
  }
  header->num_rows = shape.size() == 1 ? 1 : shape[0];
  header->num_columns = shape.back();
  if (header->num_rows == 0 || header->num_columns == 0) return Bad("shape: the array is empty");
  return absl::OkStatus();
}

// The dictionary's text, and where the numbers begin.
absl::StatusOr<absl::string_view> FindDictionary(absl::string_view bytes, size_t* data_offset) {
  absl::string_view rest = bytes;
  if (!absl::ConsumePrefix(&rest, kNpyMagic)) return Bad("no magic at its start");
  if (rest.size() < kVersionBytes) return BadHeader();
  const auto major = static_cast<unsigned char>(rest[0]);
  if (major != 1 && major != 2) return Bad("version: want 1 or 2");
  rest.remove_prefix(kVersionBytes);
  const size_t length_bytes = major == 1 ? 2 : 4;
  if (rest.size() < length_bytes) return BadHeader();
  const size_t length = ReadLittleEndian(rest.substr(0, length_bytes));
  rest.remove_prefix(length_bytes);
  if (rest.size() < length) return BadHeader();
  *data_offset = bytes.size() - rest.size() + length;
  return rest.substr(0, length);
}

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view bytes) {
  NpyHeader header;
  LETHE_ASSIGN_OR_RETURN(const absl::string_view text, FindDictionary(bytes, &header.data_offset));
  LETHE_ASSIGN_OR_RETURN(const Dictionary dictionary, ParseDictionary(text));
  if (dictionary.descr != "<f8" && dictionary.descr != "<f4") return Bad(kWantDtype);
  header.item_bytes = dictionary.descr == "<f8" ? sizeof(double) : sizeof(float);
  if (*dictionary.fortran_order) {
    return Bad("order: want C order (numpy.ascontiguousarray gives it)");
  }
  LETHE_RETURN_IF_ERROR(SetShape(*dictionary.shape, &header));
  return header;
}

}  // namespace lethe::client
