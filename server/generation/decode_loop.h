// DecodeLoop: one Generate from its first event to its last, on a session or a fork.
//
// Equation:  generation.h.
// Shapes:    none.
// Units:     none.
// Requires:  Start once, then Run once unless Start failed; every pointer outlives the loop.
// Rejects:   generation.h.
// Effects:   generation.h.
// Numerics:  generation.h.
// Threads:   one thread.
#ifndef LETHE_SERVER_GENERATION_DECODE_LOOP_H_
#define LETHE_SERVER_GENERATION_DECODE_LOOP_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "server/generation/answer_text.h"
#include "server/generation/generation_events.h"
#include "server/generation/generation_target.h"

namespace lethe {

// A stream says at least this often that it is still at work.
inline constexpr std::chrono::seconds kProgressInterval{2};

class DecodeLoop {
 public:
  DecodeLoop(const GenerateCommand& command, const Call& call, ComputeScheduler* scheduler,
             GenerationTarget* target, GenerateSink* sink, AnswerText text);

  // Sends Started and ingests the prompt. On error the history is as it was.
  absl::Status Start();
  // Draws tokens until the generation ends and sends Finished. However it ends, the history keeps
  // exactly the drawn tokens that were sent.
  absl::Status Run();

 private:
  // What one hold of the lock found: a Forget, an end, or a drawn token.
  struct Step {
    std::optional<ForgetNoticeEvent> notice;
    AnswerText::Output released;  // by the Forget
    std::optional<FinishReason> finish;
    std::optional<GeneratedTokenEvent> token;
  };

  absl::Status Announce();
  absl::Status SendProgress(int64_t num_done);
  absl::Status TakeStep(Session* session, const HistoryMark& mark, Step* step);
  void NoticeForget(const Session& session, const HistoryMark& mark, Step* step);
  absl::Status Draw(Session* session, Step* step);
  absl::Status DrawAndSend();
  // Sends what a step found; sets *finish when the generation is over.
  absl::Status Send(const Step& step, std::optional<FinishReason>* finish);
  // The sink refused what the step found: the client is gone.
  absl::Status Refused(const Step& step);
  absl::Status SendFinished(FinishReason reason);

  const GenerateCommand& command_;
  const Call& call_;
  ComputeScheduler* const scheduler_;
  GenerationTarget* const target_;
  GenerateSink* const sink_;
  AnswerText text_;

  HistoryMark mark_;
  int64_t max_tokens_ = 0;
  bool context_limited_ = false;  // max_tokens_ is what the session's own limit leaves
  std::string token_bytes_;       // of the token that the step drew
  std::optional<size_t> stop_index_;
  TokenIdRange answer_;
  uint64_t refused_token_ = 0;  // drawn and not taken by the sink; 0: none
  GenerateUsage usage_;
  std::chrono::steady_clock::time_point last_event_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_GENERATION_DECODE_LOOP_H_
