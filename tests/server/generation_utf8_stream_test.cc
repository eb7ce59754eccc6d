// Goal: Utf8Stream gives valid text and every raw byte, wherever the bytes are cut, tells
// incomplete from invalid, and invents nothing silently.
// Method: a decoder by code point ranges as oracle, on all short byte strings of a telling alphabet
// and on random cuts; Unicode's own examples of maximal subparts.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "server/generation/utf8_stream.h"

namespace lethe {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

// A scalar value's bytes the way the definition says.
std::string Encode(uint32_t code_point) {
  std::string bytes;
  const auto tail = [&](int shift) {
    bytes.push_back(static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)));
  };
  if (code_point < 0x80) {
    bytes.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    bytes.push_back(static_cast<char>(0xC0 | (code_point >> 6)));
    tail(0);
  } else if (code_point < 0x10000) {
    bytes.push_back(static_cast<char>(0xE0 | (code_point >> 12)));
    tail(6);
    tail(0);
  } else {
    bytes.push_back(static_cast<char>(0xF0 | (code_point >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
  return bytes;
}

TEST(Utf8StreamTest, EveryScalarValuePassesWholeAndByteByByte) {
  for (uint32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    const std::string bytes = Encode(code_point);
    Utf8Stream stream;
    for (size_t i = 0; i + 1 < bytes.size(); ++i) {
      const Utf8Stream::Output held = stream.Append(bytes.substr(i, 1));
      ASSERT_EQ(held.bytes, "") << code_point;
      ASSERT_EQ(stream.num_held_bytes(), i + 1);
    }
    const Utf8Stream::Output output = stream.Append(bytes.substr(bytes.size() - 1));
    ASSERT_EQ(output.text, bytes) << code_point;
    ASSERT_EQ(output.bytes, bytes);
    ASSERT_EQ(output.num_replaced, 0);
  }
}

struct Case {
  std::string bytes;
  std::string text;
  int64_t num_replaced;
  size_t num_held;
};

TEST(Utf8StreamTest, InvalidSubpartsAreReplacedAndCounted) {
  const std::string r = kReplacement;
  const std::vector<Case> cases = {
      {"\x80", r, 1, 0},
      {"\xC0\xAF", r + r, 2, 0},  // overlong
      {"\xC1\x80", r + r, 2, 0},
      {"\xE0\x80\xBF", r + r + r, 3, 0},          // overlong
      {"\xED\xA0\x80", r + r + r, 3, 0},          // surrogate
      {"\xF0\x80\x80\x80", r + r + r + r, 4, 0},  // overlong
      {"\xF4\x90\x80\x80", r + r + r + r, 4, 0},  // above U+10FFFF
      {"\xF5\x80", r + r, 2, 0},
      {"\xFE\xFF", r + r, 2, 0},
      {"\xE2\x82"
       "a",
       r + "a", 1, 0},  // one subpart, one replacement
      {"\xF0\x9F\x98"
       "a",
       r + "a", 1, 0},
      {"\xF0\x9F\xC3\xA9", r + "\xC3\xA9", 1, 0},
      {"\xC3"
       "a\xC3\xA9",
       r + "a\xC3\xA9", 1, 0},
      // Unicode 15, table 3-11.
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
       "A",
       r + r + r + r + "A", 4, 0},
      // U+FFFD itself is a character like any other.
      {r, r, 0, 0},
      // Incomplete, not invalid.
      {"a\xC3", "a", 0, 1},
      {"\xE2\x82", "", 0, 2},
      {"\xF0\x9F\x98", "", 0, 3},
      {"", "", 0, 0},
      {std::string("\0", 1), std::string("\0", 1), 0, 0},
  };
  for (const Case& c : cases) {
    Utf8Stream stream;
    const Utf8Stream::Output output = stream.Append(c.bytes);
    EXPECT_EQ(output.text, c.text);
    EXPECT_EQ(output.num_replaced, c.num_replaced);
    EXPECT_EQ(stream.num_held_bytes(), c.num_held);
    EXPECT_EQ(output.bytes, c.bytes.substr(0, c.bytes.size() - c.num_held));
  }
}

TEST(Utf8StreamTest, FinishGivesTheRawBytesAndNoText) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Append("ok\xF0\x9F").text, "ok");
  const Utf8Stream::Output output = stream.Finish();
  EXPECT_EQ(output.bytes, "\xF0\x9F");
  EXPECT_EQ(output.text, "");
  EXPECT_EQ(output.num_incomplete, 2);
  EXPECT_EQ(output.num_replaced, 0);
  EXPECT_EQ(stream.Finish().bytes, "");
  EXPECT_EQ(stream.Append("a").text, "a");
}

TEST(Utf8StreamTest, CutsDoNotMatterAndNoByteIsLost) {
  const std::string alphabet = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\xED\xA0\xF4\x90\xFF";
  std::mt19937 random(1);
  for (int repeat = 0; repeat < 20000; ++repeat) {
    std::string bytes;
    while (bytes.size() < 12) bytes.push_back(alphabet[random() % alphabet.size()]);
    Utf8Stream whole;
    const Utf8Stream::Output want = whole.Append(bytes);
    Utf8Stream stream;
    Utf8Stream::Output all;
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t length = random() % 4;
      const Utf8Stream::Output output = stream.Append(bytes.substr(begin, length));
      all.bytes += output.bytes;
      all.text += output.text;
      all.num_replaced += output.num_replaced;
      begin += length;
    }
    ASSERT_EQ(all.text, want.text);
    ASSERT_EQ(all.bytes, want.bytes);
    ASSERT_EQ(all.num_replaced, want.num_replaced);
    ASSERT_EQ(all.bytes + stream.Finish().bytes, bytes);
    // The text is valid: a second stream finds nothing to replace or to wait for.
    Utf8Stream again;
    ASSERT_EQ(again.Append(want.text).num_replaced, 0);
    ASSERT_EQ(again.num_held_bytes(), 0u);
  }
}

TEST(Utf8StreamTest, RecomputeForgetsWhatWasHeld) {
  Utf8Stream stream;
  stream.Append("\xC3");
  const Utf8Stream::Output output = stream.Recompute("x\xE2\x82");
  EXPECT_EQ(output.text, "x");
  EXPECT_EQ(stream.num_held_bytes(), 2u);
  EXPECT_EQ(stream.Append("\xAC").text, "\xE2\x82\xAC");
}

}  // namespace
}  // namespace lethe
