// GenerateAnswer: what is kept of a Generate under its request_id: whether it runs, and what it was asked.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   Decode: DATA_LOSS for bytes that Encode does not write.
// Effects:   seed and parameters are stored before the first token, so that the answer could be drawn again; a Forget
//            destroys them with the request's content hash: stop strings and label are content. The prompt is in the
//            history and not kept here.
// Numerics:  none.
// Threads:   compatible.
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

class GenerateAnswer : public StoredAnswer {
 public:
  GenerateAnswer(GenerateStage answer_stage, const GenerateCommand& command);
  ~GenerateAnswer() override;
  std::string Encode(bool keep_openings) const override;
  // What follows the kind. What was running when the process ended has ended.
  static absl::StatusOr<std::shared_ptr<StoredAnswer>> Decode(ByteReader* reader);
  void DropOpenings() override;
  bool Names(absl::string_view subject) const override {
    return parameters_.has_value() && parameters_->subject == subject;
  }
  // A stream is not replayed, so nothing is lost by being careful.
  bool BroughtIn(absl::Span<const TokenIdRange> /*token_ids*/) const override { return true; }

  const GenerateStage stage;

 private:
  struct Parameters {
    SamplingParameters sampling;
    std::vector<std::string> stop;
    std::string subject;
    bool want_logprobs = false;
    bool ignore_end_of_text = false;
  };
  GenerateAnswer() : stage(GenerateStage::kEnded), is_kept_(true) {}
  const bool is_kept_;  // false: of a fork, which leaves nothing behind
  std::optional<Parameters> parameters_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_GENERATION_GENERATE_ANSWER_H_
