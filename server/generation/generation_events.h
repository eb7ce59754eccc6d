// GenerateSink, GenerateCommand and the events of a stream: what a Generate is asked and what it
// sends, without gRPC.
//
// Equation:  none.
// Shapes:    none.
// Units:     token_ids, vocab_ids and ranks as in session.h; times in microseconds.
// Requires:  events come in the order of proto/lethe/v1/generation.proto: Started, then any, then
//            Finished.
// Rejects:   none.
// Effects:   a sink's call may block while the client reads slowly; no lock and no compute slot is
//            held meanwhile. It returns false when the client is gone: what it was given then, and
//            the tokens of UnsentTokens, count as not sent.
// Numerics:  none.
// Threads:   a sink's calls never overlap, but may come from another thread than the stream's.
#ifndef LETHE_SERVER_GENERATION_GENERATION_EVENTS_H_
#define LETHE_SERVER_GENERATION_GENERATION_EVENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/sampling/sampling.h"
#include "server/session/forget.h"
#include "server/session_registry/request_table.h"

namespace lethe {

struct GenerateCommand {
  std::vector<int32_t> prompt;  // vocab_ids; may be empty when the session holds inputs
  std::string subject;
  SamplingParameters sampling;  // seed set; max_tokens unset = kDefaultMaxTokens or what is left
  std::vector<std::string> stop;
  bool want_logprobs = false;
  bool ignore_end_of_text = false;
  bool remember = true;
  RequestKey request;
  // Go on with the stream of this request that broke behind this token; 0: before any arrived.
  std::optional<uint64_t> last_token_id;
  int64_t history_tokens = 0;  // that the session may retain; 0: as many as the model takes
};

inline constexpr int64_t kDefaultMaxTokens = 256;

enum class FinishReason {
  kStopString,
  kEndOfText,
  kMaxTokens,
  kContextLimit,
  kShutdown,
  kForgotten,
};

struct StartedEvent {
  uint64_t seed = 0;
  TokenIdRange prompt_token_ids;  // empty without a prompt
  int64_t num_context_tokens = 0;
  std::optional<uint64_t>
      resumed_after;  // set: the stream goes on behind this token; 0: from the answer's start
};

struct GeneratedTokenEvent {
  uint64_t token_id = 0;
  int32_t vocab_id = 0;
  std::optional<double> logprob;
  std::vector<TokenLogprob> top_logprobs;
};

struct DeltaEvent {
  std::string text;  // valid UTF-8
  std::string raw;   // the same bytes as drawn
  std::vector<GeneratedTokenEvent> tokens;
};

struct ForgetNoticeEvent {
  int64_t num_forgotten = 0;
  int64_t num_context_tokens = 0;
};

struct ProgressEvent {
  int64_t num_prompt_tokens_done = 0;
  int64_t num_prompt_tokens = 0;
};

struct GenerateUsage {
  int64_t num_prompt_tokens = 0;
  int64_t num_generated_tokens = 0;
  int64_t num_cached_tokens = 0;
  int64_t prompt_us = 0;
  int64_t generation_us = 0;
};

struct FinishedEvent {
  FinishReason reason = FinishReason::kMaxTokens;
  std::string matched_stop;
  GenerateUsage usage;
  TokenIdRange answer_token_ids;  // empty when nothing was generated
  int64_t num_invalid_utf8 = 0;
};

class GenerateSink {
 public:
  virtual ~GenerateSink() = default;
  virtual bool Started(const StartedEvent& event) = 0;
  virtual bool Delta(const DeltaEvent& event) = 0;
  virtual bool ForgetNotice(const ForgetNoticeEvent& event) = 0;
  virtual bool Progress(const ProgressEvent& event) = 0;
  virtual bool Finished(const FinishedEvent& event) = 0;
  // For sinks that take events before they are sent. Flush waits until all are sent; false: the
  // client is gone. UnsentTokens: tokens of deltas that were taken and then not sent.
  virtual bool Flush() { return true; }
  virtual std::vector<uint64_t> UnsentTokens() { return {}; }
};

}  // namespace lethe

#endif  // LETHE_SERVER_GENERATION_GENERATION_EVENTS_H_
