// Goal: the tokenizer loses no byte, and whatever text and stop strings are, what is sent of an answer is what comes before the first
// match, as valid UTF-8, however the answer was cut into tokens.
// Method: stop strings and text from the bytes; tokenize and join; AnswerText token by token and in longer pieces, beside a
// search for the first match in the whole text.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "server/generation/answer_text.h"
#include "tests/fuzz/fuzz_bytes.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/server/serving_testing.h"

namespace lethe::fuzz {
namespace {

struct Answer {
  std::string text;
  std::string raw;
  std::optional<size_t> stop_index;
};

// Tables 3-7 of the Unicode standard, as a decoder of one character; 0: there is none.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return 0;
  uint32_t point = lead & (0x7fu >> size);
  for (size_t i = 1; i < size; ++i) {
    if (byte(i) >> 6 != 2) return 0;
    point = point << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = point >= 0xd800 && point < 0xe000;
  return point < kSmallest[size] || point > 0x10ffff || is_surrogate ? 0 : size;
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

// The first byte at which a stop string ends, of several the longest, ends the answer.
Answer Expected(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    Answer answer;
    size_t longest = 0;
    for (size_t i = 0; i < stops.size(); ++i) {
      const size_t size = stops[i].size();
      if (size > end || size <= longest || text.compare(end - size, size, stops[i]) != 0) continue;
      longest = size;
      answer.stop_index = i;
    }
    if (longest == 0) continue;
    answer.raw = text.substr(0, end - longest);
    return answer;
  }
  return {"", text, std::nullopt};
}

void Add(const AnswerText::Output& output, Answer* answer) {
  answer->text += output.text;
  answer->raw += output.raw;
  LETHE_CHECK(IsUtf8(output.text));
  if (output.stop_index) answer->stop_index = output.stop_index;
}

Answer Sent(const std::vector<std::string>& stops, absl::string_view text, size_t piece) {
  auto answer_text = AnswerText::Create(stops);
  LETHE_CHECK(answer_text.ok());
  Answer answer;
  for (uint64_t id = 1; !text.empty() && !answer.stop_index; ++id) {
    const std::string token(text.substr(0, piece));
    text.remove_prefix(token.size());
    Add(answer_text->Append(id, token), &answer);
  }
  Add(answer_text->Finish(), &answer);
  return answer;
}

void CheckTokenizer(const std::string& text) {
  const std::shared_ptr<const Model> model = testing::TinyModel();
  std::string joined;
  for (const int32_t vocab_id : model->Tokenize(text)) {
    LETHE_CHECK(vocab_id >= 0 && vocab_id < model->config().vocab_size);
    joined += model->TokenBytes(vocab_id);
  }
  LETHE_CHECK(joined == text);
}

}  // namespace

void FuzzAnswerText(absl::string_view bytes) {
  FuzzBytes input(bytes);
  std::vector<std::string> stops;
  for (int64_t left = input.Below(4); left > 0; --left) {
    std::string stop = input.Piece(static_cast<size_t>(input.Below(12)));
    if (!stop.empty()) stops.push_back(std::move(stop));
  }
  const auto piece = static_cast<size_t>(2 + input.Below(30));
  const std::string text = input.Rest();
  CheckTokenizer(text);
  const Answer expected = Expected(stops, text);
  const Answer by_bytes = Sent(stops, text, 1);
  const Answer by_pieces = Sent(stops, text, piece);
  LETHE_CHECK(by_bytes.raw == expected.raw && by_pieces.raw == expected.raw);
  LETHE_CHECK(by_bytes.stop_index == expected.stop_index);
  LETHE_CHECK(by_pieces.stop_index == expected.stop_index);
  LETHE_CHECK(by_bytes.text == by_pieces.text);
  if (IsUtf8(expected.raw)) LETHE_CHECK(by_bytes.text == expected.raw);
}

}  // namespace lethe::fuzz

LETHE_FUZZ_ENTRY(lethe::fuzz::FuzzAnswerText)
