#include "server/generation/utf8_stream.h"

#include <utility>

namespace lethe {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

// How a byte string begins.
struct Prefix {
  enum class Kind { kWhole, kInvalid, kIncomplete };
  Kind kind = Kind::kInvalid;
  size_t num_bytes = 1;  // of the character, of the invalid subpart, or of what there is so far
};

uint8_t At(absl::string_view bytes, size_t i) { return static_cast<uint8_t>(bytes[i]); }

// Unicode 15, table 3-7: length by first byte, 0 where none begins so.
size_t Length(uint8_t first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  if (first >= 0xF0 && first <= 0xF4) return 4;
  return 0;
}

// The same table: the second byte's range excludes overlong forms, surrogates and what is above
// U+10FFFF.
bool IsContinuation(uint8_t first, size_t index, uint8_t byte) {
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
  if (index == 1) {
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  }
  return byte >= low && byte <= high;
}

// Requires bytes not to be empty.
Prefix Classify(absl::string_view bytes) {
  const uint8_t first = At(bytes, 0);
  const size_t length = Length(first);
  if (length == 0) return {Prefix::Kind::kInvalid, 1};
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Prefix::Kind::kIncomplete, i};
    if (!IsContinuation(first, i, At(bytes, i))) return {Prefix::Kind::kInvalid, i};
  }
  return {Prefix::Kind::kWhole, length};
}

}  // namespace

Utf8Stream::Output Utf8Stream::Append(absl::string_view bytes) {
  held_.append(bytes.data(), bytes.size());
  Output output;
  size_t done = 0;
  while (done < held_.size()) {
    const absl::string_view rest = absl::string_view(held_).substr(done);
    const Prefix prefix = Classify(rest);
    if (prefix.kind == Prefix::Kind::kIncomplete) break;
    if (prefix.kind == Prefix::Kind::kWhole) {
      output.text.append(rest.data(), prefix.num_bytes);
    } else {
      output.text += kReplacement;
      ++output.num_replaced;
    }
    done += prefix.num_bytes;
  }
  output.bytes = held_.substr(0, done);
  held_.erase(0, done);
  return output;
}

Utf8Stream::Output Utf8Stream::Finish() {
  Output output;
  output.bytes = std::exchange(held_, std::string());
  output.num_incomplete = static_cast<int64_t>(output.bytes.size());
  return output;
}

Utf8Stream::Output Utf8Stream::Recompute(absl::string_view undelivered_bytes) {
  held_.clear();
  return Append(undelivered_bytes);
}

}  // namespace lethe
