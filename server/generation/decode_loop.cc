#include "server/generation/decode_loop.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/generation/generate_answer.h"
#include "server/generation/ingest.h"

namespace lethe {
namespace {

using Clock = std::chrono::steady_clock;

int64_t MicrosSince(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
}

absl::Status Gone() { return absl::CancelledError("the client went away"); }

bool Holds(const Session& session, uint64_t token_id) {
  return session.inputs().FindRank(token_id) >= 0;
}

}  // namespace

DecodeLoop::DecodeLoop(const GenerateCommand& command, const Call& call,
                       ComputeScheduler* scheduler, GenerationTarget* target, GenerateSink* sink,
                       AnswerText text)
    : command_(command),
      call_(call),
      scheduler_(scheduler),
      target_(target),
      sink_(sink),
      text_(std::move(text)),
      last_event_(Clock::now()) {}

absl::Status DecodeLoop::Start() {
  LETHE_RETURN_IF_ERROR(Announce());
  const Clock::time_point start = Clock::now();
  TokenIdRange given;
  if (!command_.prompt.empty()) {
    IngestOptions options;
    options.subject = command_.subject;
    options.kind = InputKind::kPrompt;
    options.on_piece = [this](int64_t num_done) { return SendProgress(num_done).ok(); };
    LETHE_ASSIGN_OR_RETURN(given, Ingest(command_.prompt, options, call_, scheduler_, target_));
    // A client that was never told the prompt's ids cannot forget it.
    if (!sink_->Flush()) {
      target_->TakeBack(scheduler_, {given});
      return Gone();
    }
  }
  // The request too is durable before the first token is drawn.
  auto answer = std::make_shared<GenerateAnswer>(GenerateStage::kRunning, command_);
  if (const absl::Status stored = target_->Store(command_.request, std::move(answer));
      !stored.ok()) {
    if (given.first < given.end) target_->TakeBack(scheduler_, {given});
    return stored;
  }
  usage_.prompt_us = MicrosSince(start);
  return absl::OkStatus();
}

absl::Status DecodeLoop::Announce() {
  StartedEvent started;
  started.seed = command_.sampling.seed;
  const auto num_prompt = static_cast<int64_t>(command_.prompt.size());
  LETHE_RETURN_IF_ERROR(
      target_->Run(call_, scheduler_, [&](Session* session, const HistoryMark& mark) {
        mark_ = mark;
        // Again, as a Forget or, on a fork, nothing else may have come in between.
        const int64_t left = session->max_tokens() - session->num_tokens() - num_prompt;
        max_tokens_ = command_.sampling.max_tokens.value_or(std::min(kDefaultMaxTokens, left));
        context_limited_ = !command_.sampling.max_tokens.has_value() && left < kDefaultMaxTokens;
        usage_.num_prompt_tokens = num_prompt;
        usage_.num_cached_tokens = session->num_tokens();
        started.num_context_tokens = session->num_tokens() + num_prompt;
        if (num_prompt > 0) {
          started.prompt_token_ids = {session->next_token_id(),
                                      session->next_token_id() + static_cast<uint64_t>(num_prompt)};
        }
        return target_->Reserve(*session, num_prompt);
      }));
  return sink_->Started(started) ? absl::OkStatus() : Gone();
}

absl::Status DecodeLoop::SendProgress(int64_t num_done) {
  if (Clock::now() - last_event_ < kProgressInterval) return absl::OkStatus();
  last_event_ = Clock::now();
  return sink_->Progress({num_done, usage_.num_prompt_tokens}) ? absl::OkStatus() : Gone();
}

absl::Status DecodeLoop::Run() {
  absl::Status status = DrawAndSend();
  if (!sink_->Flush() && status.ok()) status = Gone();
  std::vector<uint64_t> unsent = sink_->UnsentTokens();
  if (refused_token_ != 0) unsent.push_back(refused_token_);
  std::vector<TokenIdRange> ranges;
  ranges.reserve(unsent.size());
  for (const uint64_t token_id : unsent) ranges.push_back({token_id, token_id + 1});
  if (!ranges.empty()) target_->TakeBack(scheduler_, std::move(ranges));
  return status;
}

absl::Status DecodeLoop::Refused(const Step& step) {
  if (step.token.has_value()) refused_token_ = step.token->token_id;
  return Gone();
}

absl::Status DecodeLoop::DrawAndSend() {
  const Clock::time_point start = Clock::now();
  std::optional<FinishReason> finish;
  while (!finish.has_value()) {
    Step step;
    LETHE_RETURN_IF_ERROR(
        target_->Run(call_, scheduler_, [&](Session* session, const HistoryMark& mark) {
          absl::Status taken = TakeStep(session, mark, &step);
          if (step.token.has_value()) target_->NoteDrawn(*session);
          return taken;
        }));
    LETHE_RETURN_IF_ERROR(Send(step, &finish));
  }
  usage_.generation_us = MicrosSince(start);
  return SendFinished(*finish);
}

absl::Status DecodeLoop::TakeStep(Session* session, const HistoryMark& mark, Step* step) {
  if (mark.epoch != mark_.epoch) NoticeForget(*session, mark, step);
  if (session->num_tokens() == 0 || target_->is_stopped()) {
    step->finish = FinishReason::kForgotten;
  } else if (step->released.stop_index.has_value()) {
    step->finish = FinishReason::kStopString;
  } else if (usage_.num_generated_tokens >= max_tokens_) {
    step->finish = context_limited_ ? FinishReason::kContextLimit : FinishReason::kMaxTokens;
  } else if (call_.stopping()) {
    step->finish = FinishReason::kShutdown;
  } else {
    return Draw(session, step);
  }
  return absl::OkStatus();
}

void DecodeLoop::NoticeForget(const Session& session, const HistoryMark& mark, Step* step) {
  step->notice = ForgetNoticeEvent{mark.num_forgotten - mark_.num_forgotten, session.num_tokens()};
  mark_ = mark;
  step->released = text_.Retain([&](uint64_t token_id) { return Holds(session, token_id); });
}

absl::Status DecodeLoop::Draw(Session* session, Step* step) {
  const absl::StatusOr<SampledToken> drawn = Sample(session->logits(), session->repetition_counts(),
                                                    command_.sampling, session->num_tokens());
  if (!drawn.ok()) return WithDefaultReason(drawn.status(), "NON_FINITE_LOGITS");
  const absl::StatusOr<uint64_t> token_id =
      session->AppendGenerated(drawn->vocab_id, command_.subject);
  if (!token_id.ok()) return WithDefaultReason(token_id.status(), "NON_FINITE_LOGITS");
  GeneratedTokenEvent token;
  token.token_id = *token_id;
  token.vocab_id = drawn->vocab_id;
  if (command_.want_logprobs) {
    token.logprob = drawn->logprob;
    token.top_logprobs = drawn->top;
  }
  step->token = std::move(token);
  const ModelConfig& config = session->model().config();
  if (drawn->vocab_id == config.end_of_text && !command_.ignore_end_of_text) {
    step->finish = FinishReason::kEndOfText;
  } else {
    token_bytes_ = session->model().TokenBytes(drawn->vocab_id);
  }
  return absl::OkStatus();
}

absl::Status DecodeLoop::Send(const Step& step, std::optional<FinishReason>* finish) {
  *finish = step.finish;
  if (step.notice.has_value() && !sink_->ForgetNotice(*step.notice)) return Refused(step);
  if (step.released.stop_index.has_value()) stop_index_ = step.released.stop_index;
  DeltaEvent delta{step.released.text, step.released.raw, {}};
  if (step.token.has_value()) {
    ++usage_.num_generated_tokens;
    const uint64_t token_id = step.token->token_id;
    if (answer_.first == answer_.end) answer_.first = token_id;
    answer_.end = token_id + 1;
    delta.tokens.push_back(*step.token);
    if (step.finish != FinishReason::kEndOfText) {
      AnswerText::Output output = text_.Append(token_id, token_bytes_);
      delta.text += output.text;
      delta.raw += output.raw;
      if (output.stop_index.has_value()) {
        stop_index_ = output.stop_index;
        *finish = FinishReason::kStopString;
      }
    }
  }
  if (delta.tokens.empty() && delta.raw.empty()) return absl::OkStatus();
  last_event_ = Clock::now();
  return sink_->Delta(delta) ? absl::OkStatus() : Refused(step);
}

absl::Status DecodeLoop::SendFinished(FinishReason reason) {
  const AnswerText::Output rest = text_.Finish();
  if (!rest.raw.empty() && !sink_->Delta({rest.text, rest.raw, {}})) return Gone();
  FinishedEvent finished;
  finished.reason = reason;
  if (stop_index_.has_value()) finished.matched_stop = command_.stop[*stop_index_];
  finished.usage = usage_;
  finished.answer_token_ids = answer_;
  finished.num_invalid_utf8 = text_.num_invalid_utf8();
  return sink_->Finished(finished) ? absl::OkStatus() : Gone();
}

}  // namespace lethe
