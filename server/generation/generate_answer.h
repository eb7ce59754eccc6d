// GenerateAnswer: what is kept of a Generate under its request_id: whether it runs, what it was asked, and where its
// answer stands in the history.
//
// Equation:  none.
// Shapes:    none.
// Units:     token_ids.
// Requires:  none.
// Rejects:   Decode: DATA_LOSS for bytes that Encode does not write.
// Effects:   seed and parameters are stored before the first token, so that the answer can be gone on with; a Forget
//            destroys them with the request's content hash: stop strings and label are content, and after it nobody could
//            draw what the answer would have become. The prompt and the answer are in the history and not kept here.
// Numerics:  none.
// Threads:   compatible; one that is in a RequestTable: under the session's lock.
#ifndef LETHE_SERVER_GENERATION_GENERATE_ANSWER_H_
#define LETHE_SERVER_GENERATION_GENERATE_ANSWER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "kernels/base/byte_io.h"
#include "server/generation/generation_events.h"
#include "server/session_registry/request_table.h"

namespace lethe {

enum class GenerateStage {
  kStarting,  // the prompt is coming in: nothing of it is stored yet
  kRunning,   // prompt and request are stored
  kEnded,
};

// Nobody else writes while an answer is drawn, so its tokens are the retained inputs of a range.
struct AnswerPlace {
  uint64_t prompt_first = 0;     // the prompt ends where the answer begins
  uint64_t first = 0;            // no token of the answer has a smaller id
  uint64_t end = 0;              // nor a larger one than what is before this; 0: it is being drawn
  int64_t max_tokens = 0;        // as they were found when it began
  bool context_limited = false;  // max_tokens is what the session's own limit left
};

class GenerateAnswer : public StoredAnswer {
 public:
  // kStarting.
  explicit GenerateAnswer(const GenerateCommand& command);
  // kRunning.
  GenerateAnswer(const GenerateCommand& command, const AnswerPlace& place);
  GenerateAnswer(const GenerateAnswer&) = default;
  ~GenerateAnswer() override;
  std::string Encode(bool keep_openings) const override;
  // What follows the kind. What was running when the process ended runs until EndAt.
  static absl::StatusOr<std::shared_ptr<StoredAnswer>> Decode(ByteReader* reader);
  void DropOpenings() override;
  bool Names(absl::string_view subject) const override {
    return parameters_.has_value() && parameters_->subject == subject;
  }
  // Whatever was forgotten, the answer cannot be gone on with.
  bool BroughtIn(absl::Span<const TokenIdRange> /*token_ids*/) const override { return true; }
  bool IsRunning() const override { return stage_ != GenerateStage::kEnded; }
  bool EndAt(uint64_t end_id) override;
  // It runs again, to draw or only to be sent once more.
  void RunAgain(bool draws);

  GenerateStage stage() const { return stage_; }
  bool is_kept() const { return is_kept_; }  // false: of a fork, which leaves nothing behind
  const AnswerPlace& place() const { return place_; }
  // What it was asked, without prompt and request; unset once a Forget destroyed it.
  std::optional<GenerateCommand> Command() const;

 private:
  struct Parameters {
    SamplingParameters sampling;
    std::vector<std::string> stop;
    std::string subject;
    bool want_logprobs = false;
    bool ignore_end_of_text = false;
  };
  GenerateAnswer() = default;

  GenerateStage stage_ = GenerateStage::kEnded;
  bool is_kept_ = true;
  AnswerPlace place_;
  std::optional<Parameters> parameters_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_GENERATION_GENERATE_ANSWER_H_
