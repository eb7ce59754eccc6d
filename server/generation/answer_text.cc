#include "server/generation/answer_text.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"

namespace lethe {

absl::StatusOr<AnswerText> AnswerText::Create(absl::Span<const std::string> stop_strings) {
  if (stop_strings.empty()) return AnswerText(StopMatcher());
  LETHE_ASSIGN_OR_RETURN(StopMatcher stop, StopMatcher::Create(stop_strings));
  return AnswerText(std::move(stop));
}

AnswerText::Output AnswerText::Append(uint64_t token_id, const std::string& bytes) {
  tokens_.push_back({token_id, bytes});
  StopMatcher::Output passed = stop_.Append(bytes);
  Output output;
  output.stop_index = passed.stop_index;
  Take(utf8_.Append(passed.bytes), &output);
  return output;
}

AnswerText::Output AnswerText::Retain(const std::function<bool(uint64_t)>& retained) {
  std::string bytes;
  size_t offset = 0;
  size_t num_delivered = 0;
  std::vector<Token> kept;
  for (Token& token : tokens_) {
    const size_t size = token.bytes.size();
    if (retained(token.token_id)) {
      num_delivered += std::min(size, num_delivered_ - std::min(num_delivered_, offset));
      bytes += token.bytes;
      kept.push_back(std::move(token));
    }
    offset += size;
  }
  tokens_ = std::move(kept);
  num_delivered_ = num_delivered;
  StopMatcher::Output passed = stop_.Recompute(bytes, num_delivered);
  Output output;
  output.stop_index = passed.stop_index;
  Take(utf8_.Recompute(passed.bytes), &output);
  return output;
}

AnswerText::Output AnswerText::Finish() {
  Output output;
  Take(utf8_.Append(stop_.Finish()), &output);
  Take(utf8_.Finish(), &output);
  return output;
}

void AnswerText::Take(const Utf8Stream::Output& from, Output* to) {
  num_delivered_ += from.bytes.size();
  num_invalid_utf8_ += from.num_replaced + (from.num_incomplete > 0 ? 1 : 0);
  to->text += from.text;
  to->raw += from.bytes;
}

}  // namespace lethe
