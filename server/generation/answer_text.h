// AnswerText: the text of an answer as it is streamed: stop strings, whole UTF-8 characters, and a
// Forget in the middle.
//
// Equation:  none.
// Shapes:    none.
// Units:     bytes.
// Requires:  token_ids ascend.
// Rejects:   Create: what StopMatcher::Create rejects.
// Effects:   holds back what may begin a stop string or is an incomplete character. Retain drops
//            the tokens that a Forget removed and decides again what to hold, from the retained
//            answer alone.
// Numerics:  none. Memory O(answer).
// Threads:   compatible.
#ifndef LETHE_SERVER_GENERATION_ANSWER_TEXT_H_
#define LETHE_SERVER_GENERATION_ANSWER_TEXT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "server/generation/stop_matcher.h"
#include "server/generation/utf8_stream.h"

namespace lethe {

class AnswerText {
 public:
  static absl::StatusOr<AnswerText> Create(absl::Span<const std::string> stop_strings);

  struct Output {
    std::string text;                  // valid UTF-8, to be sent now
    std::string raw;                   // the same as raw bytes
    std::optional<size_t> stop_index;  // a stop string matched
  };
  Output Append(uint64_t token_id, const std::string& bytes);
  // Keeps the tokens for which `retained` is true.
  Output Retain(const std::function<bool(uint64_t)>& retained);
  // What was held back; call it on every way a generation can end.
  Output Finish();

  int64_t num_invalid_utf8() const { return num_invalid_utf8_; }

 private:
  explicit AnswerText(StopMatcher stop) : stop_(std::move(stop)) {}
  void Take(const Utf8Stream::Output& from, Output* to);

  struct Token {
    uint64_t token_id = 0;
    std::string bytes;
  };
  StopMatcher stop_;
  Utf8Stream utf8_;
  std::vector<Token> tokens_;
  size_t num_delivered_ = 0;  // leading bytes of the answer that were sent
  int64_t num_invalid_utf8_ = 0;
};

}  // namespace lethe

#endif  // LETHE_SERVER_GENERATION_ANSWER_TEXT_H_
