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

// Of an earlier stream, sent together: as few as a sink lets wait.
constexpr int64_t kRetainedTokensPerStep = 32;

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
  auto answer = std::make_shared<GenerateAnswer>(command_, place_);
  if (const absl::Status stored = target_->Store(command_.request, std::move(answer));
      !stored.ok()) {
    if (given.first < given.end) target_->TakeBack(scheduler_, {given});
    return stored;
  }
  usage_.prompt_us = MicrosSince(start);
  return absl::OkStatus();
}

absl::Status DecodeLoop::Resume(const Resumption& resumption) {
  mark_ = resumption.mark;
  place_ = resumption.place;
  retained_ = {place_.first, place_.end};
  resumed_after_ = resumption.started.resumed_after.value_or(0);
  drawn_first_ = place_.end;
  usage_.num_prompt_tokens = static_cast<int64_t>(place_.first - place_.prompt_first);
  usage_.num_cached_tokens = resumption.started.num_context_tokens;
  return sink_->Started(resumption.started) ? absl::OkStatus() : Gone();
}

absl::Status DecodeLoop::Announce() {
  StartedEvent started;
  started.seed = command_.sampling.seed;
  const auto num_prompt = static_cast<int64_t>(command_.prompt.size());
  LETHE_RETURN_IF_ERROR(
      target_->Run(call_, scheduler_, [&](Session* session, const HistoryMark& mark) {
        mark_ = mark;
        // Again, as a Forget or, on a fork, nothing else may have come in between.
        const int64_t left = RemainingTokens(*session, command_.history_tokens) - num_prompt;
        place_.max_tokens =
            command_.sampling.max_tokens.value_or(std::min(kDefaultMaxTokens, left));
        place_.context_limited =
            !command_.sampling.max_tokens.has_value() && left < kDefaultMaxTokens;
        place_.prompt_first = session->next_token_id();
        place_.first = place_.prompt_first + static_cast<uint64_t>(num_prompt);
        usage_.num_prompt_tokens = num_prompt;
        usage_.num_cached_tokens = session->num_tokens();
        started.num_context_tokens = session->num_tokens() + num_prompt;
        if (num_prompt > 0) started.prompt_token_ids = {place_.prompt_first, place_.first};
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
  unsent.insert(unsent.end(), refused_.begin(), refused_.end());
  std::vector<TokenIdRange> ranges;
  ranges.reserve(unsent.size());
  for (const uint64_t token_id : unsent) {
    if (token_id >= drawn_first_) ranges.push_back({token_id, token_id + 1});
  }
  if (!ranges.empty()) target_->TakeBack(scheduler_, std::move(ranges));
  return status;
}

absl::Status DecodeLoop::Refused(const Step& step) {
  for (const StepToken& token : step.tokens) refused_.push_back(token.event.token_id);
  return Gone();
}

absl::Status DecodeLoop::DrawAndSend() {
  const Clock::time_point start = Clock::now();
  std::optional<FinishReason> finish;
  while (!finish.has_value()) {
    Step step;
    LETHE_RETURN_IF_ERROR(target_->Run(
        call_, scheduler_,
        [&](Session* session, const HistoryMark& mark) { return TakeStep(session, mark, &step); }));
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
  } else if (!call_.stopping() && TakeRetained(*session, step)) {
    return absl::OkStatus();
  } else if (usage_.num_generated_tokens >= place_.max_tokens) {
    step->finish = LimitReason();
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

bool DecodeLoop::TakeRetained(const Session& session, Step* step) {
  const Inputs& inputs = session.inputs();
  const auto [first, end] = inputs.RanksOf(retained_);
  for (int64_t rank = first; rank < std::min(end, first + kRetainedTokensPerStep); ++rank) {
    const Input& input = inputs.at(rank);
    StepToken& token = step->tokens.emplace_back();
    token.event.token_id = input.token_id;
    token.event.vocab_id = input.vocab_id;
    token.ends_text = EndsText(input.vocab_id, command_, session.model().config());
    if (!token.ends_text) token.bytes = session.model().TokenBytes(input.vocab_id);
    retained_.first = input.token_id + 1;
  }
  return !step->tokens.empty();
}

absl::Status DecodeLoop::Draw(Session* session, Step* step) {
  const absl::StatusOr<SampledToken> drawn = Sample(session->logits(), session->repetition_counts(),
                                                    command_.sampling, session->num_tokens());
  if (!drawn.ok()) return WithDefaultReason(drawn.status(), "NON_FINITE_LOGITS");
  const absl::StatusOr<uint64_t> token_id =
      session->AppendGenerated(drawn->vocab_id, command_.subject);
  if (!token_id.ok()) return WithDefaultReason(token_id.status(), "NON_FINITE_LOGITS");
  StepToken& token = step->tokens.emplace_back();
  token.event.token_id = *token_id;
  token.event.vocab_id = drawn->vocab_id;
  if (command_.want_logprobs) {
    token.event.logprob = drawn->logprob;
    token.event.top_logprobs = drawn->top;
  }
  token.ends_text = EndsText(drawn->vocab_id, command_, session->model().config());
  if (!token.ends_text) token.bytes = session->model().TokenBytes(drawn->vocab_id);
  target_->NoteDrawn(*session);
  return absl::OkStatus();
}

absl::Status DecodeLoop::Send(const Step& step, std::optional<FinishReason>* finish) {
  *finish = step.finish;
  if (step.notice.has_value() && !sink_->ForgetNotice(*step.notice)) return Refused(step);
  if (step.released.stop_index.has_value()) stop_index_ = step.released.stop_index;
  DeltaEvent delta{step.released.text, step.released.raw, {}};
  for (const StepToken& token : step.tokens) {
    TakeToken(token, &delta, finish);
    if (finish->has_value()) break;
  }
  if (delta.tokens.empty() && delta.raw.empty()) return absl::OkStatus();
  last_event_ = Clock::now();
  return sink_->Delta(delta) ? absl::OkStatus() : Refused(step);
}

void DecodeLoop::TakeToken(const StepToken& token, DeltaEvent* delta,
                           std::optional<FinishReason>* finish) {
  const uint64_t token_id = token.event.token_id;
  ++usage_.num_generated_tokens;
  if (answer_.first == answer_.end) answer_.first = token_id;
  answer_.end = token_id + 1;
  AnswerText::Output output;
  if (token.ends_text) {
    *finish = FinishReason::kEndOfText;
  } else {
    output = text_.Append(token_id, token.bytes);
  }
  if (output.stop_index.has_value()) {
    stop_index_ = output.stop_index;
    *finish = FinishReason::kStopString;
  } else if (!finish->has_value() && usage_.num_generated_tokens >= place_.max_tokens) {
    *finish = LimitReason();
  }
  // The last token brings what was held back: who has the one has the other.
  if (finish->has_value()) {
    const AnswerText::Output rest = text_.Finish();
    output.text += rest.text;
    output.raw += rest.raw;
  }
  if (token_id <= resumed_after_) return;
  delta->tokens.push_back(token.event);
  delta->text += output.text;
  delta->raw += output.raw;
}

absl::Status DecodeLoop::SendFinished(FinishReason reason) {
  // What a shutdown holds back comes when the stream goes on, if it can.
  const bool goes_on = reason == FinishReason::kShutdown && command_.remember &&
                       !command_.request.request_id.empty();
  const AnswerText::Output rest = goes_on ? AnswerText::Output() : text_.Finish();
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
