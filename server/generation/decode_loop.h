// DecodeLoop: one Generate from its first event to its last, on a session or a fork.
//
// Equation:  generation.h.
// Shapes:    none.
// Units:     none.
// Requires:  Start or Resume once, then Run once unless that failed; every pointer outlives the loop.
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
#include "server/generation/generate_answer.h"
#include "server/generation/generation_events.h"
#include "server/generation/generation_target.h"
#include "server/generation/resumption.h"

namespace lethe {

// A stream says at least this often that it is still at work.
inline constexpr std::chrono::seconds kProgressInterval{2};

class DecodeLoop {
 public:
  DecodeLoop(const GenerateCommand& command, const Call& call, ComputeScheduler* scheduler,
             GenerationTarget* target, GenerateSink* sink, AnswerText text);

  // Sends Started and ingests the prompt. On error the history is as it was.
  absl::Status Start();
  // Sends Started; Run then begins with the tokens that the history has.
  absl::Status Resume(const Resumption& resumption);
  // Draws tokens until the generation ends and sends Finished. However it ends, of the tokens that
  // this drew the history keeps exactly those that were sent.
  absl::Status Run();

 private:
  struct StepToken {
    GeneratedTokenEvent event;
    std::string bytes;
    bool ends_text = false;
  };
  // What one hold of the lock found: a Forget, an end, a drawn token, or tokens that were there.
  struct Step {
    std::optional<ForgetNoticeEvent> notice;
    AnswerText::Output released;  // by the Forget
    std::optional<FinishReason> finish;
    std::vector<StepToken> tokens;
  };

  absl::Status Announce();
  absl::Status SendProgress(int64_t num_done);
  absl::Status TakeStep(Session* session, const HistoryMark& mark, Step* step);
  void NoticeForget(const Session& session, const HistoryMark& mark, Step* step);
  // False: the stream is at the end of what an earlier one left.
  bool TakeRetained(const Session& session, Step* step);
  absl::Status Draw(Session* session, Step* step);
  absl::Status DrawAndSend();
  // Sends what a step found; sets *finish when the generation is over.
  absl::Status Send(const Step& step, std::optional<FinishReason>* finish);
  void TakeToken(const StepToken& token, DeltaEvent* delta, std::optional<FinishReason>* finish);
  // The sink refused what the step found: the client is gone.
  absl::Status Refused(const Step& step);
  FinishReason LimitReason() const {
    return place_.context_limited ? FinishReason::kContextLimit : FinishReason::kMaxTokens;
  }
  absl::Status SendFinished(FinishReason reason);

  const GenerateCommand& command_;
  const Call& call_;
  ComputeScheduler* const scheduler_;
  GenerationTarget* const target_;
  GenerateSink* const sink_;
  AnswerText text_;

  HistoryMark mark_;
  AnswerPlace place_;
  TokenIdRange retained_;       // of an earlier stream, not gone through yet
  uint64_t resumed_after_ = 0;  // the client has this token and what came before it
  uint64_t drawn_first_ = 0;    // what this stream draws has ids from here on
  std::optional<size_t> stop_index_;
  TokenIdRange answer_;
  std::vector<uint64_t> refused_;  // by the sink
  GenerateUsage usage_;
  std::chrono::steady_clock::time_point last_event_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_GENERATION_DECODE_LOOP_H_
