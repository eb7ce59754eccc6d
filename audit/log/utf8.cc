#include "audit/log/utf8.h"

#include <cstdint>
#include <optional>

namespace lethe::audit {
namespace {

// Takes one code point off the front; nothing when the bytes are not UTF-8.
std::optional<uint32_t> TakeCodePoint(absl::string_view* text) {
  const auto first = static_cast<uint8_t>((*text)[0]);
  size_t num_bytes = 1;
  uint32_t code_point = first;
  uint32_t least = 0;  // shortest form
  if (first >= 0xf8 || (first & 0xc0) == 0x80) return std::nullopt;
  if (first >= 0xf0) {
    num_bytes = 4, code_point = first & 0x07u, least = 0x10000;
  } else if (first >= 0xe0) {
    num_bytes = 3, code_point = first & 0x0fu, least = 0x800;
  } else if (first >= 0xc0) {
    num_bytes = 2, code_point = first & 0x1fu, least = 0x80;
  }
  if (text->size() < num_bytes) return std::nullopt;
  for (size_t i = 1; i < num_bytes; ++i) {
    const auto byte = static_cast<uint8_t>((*text)[i]);
    if ((byte & 0xc0) != 0x80) return std::nullopt;
    code_point = (code_point << 6) | (byte & 0x3fu);
  }
  const bool surrogate = code_point >= 0xd800 && code_point <= 0xdfff;
  if (code_point < least || code_point > 0x10ffff || surrogate) return std::nullopt;
  text->remove_prefix(num_bytes);
  return code_point;
}

// Unicode 15, PropList.txt, White_Space.
bool IsSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

}  // namespace

bool IsUtf8Text(absl::string_view text) {
  while (!text.empty()) {
    if (!TakeCodePoint(&text).has_value()) return false;
  }
  return true;
}

bool IsNoteUtf8(absl::string_view text) {
  while (!text.empty()) {
    const std::optional<uint32_t> c = TakeCodePoint(&text);
    if (!c.has_value() || (*c < 0x20 && *c != '\n')) return false;
  }
  return true;
}

bool HasUnicodeSpace(absl::string_view text) {
  while (!text.empty()) {
    const std::optional<uint32_t> c = TakeCodePoint(&text);
    if (c.has_value() && IsSpace(*c)) return true;
    if (!c.has_value()) return false;
  }
  return false;
}

}  // namespace lethe::audit
