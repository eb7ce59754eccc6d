#include "client/commands/generation_printer.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/commands/proto_json.h"
#include "client/commands/report.h"
#include "client/id_ranges.h"

namespace lethe::client {
namespace {

const char* ReasonText(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP_STRING:
      return "stopped at a stop string";
    case v1::FINISH_REASON_END_OF_TEXT:
      return "end of text";
    case v1::FINISH_REASON_MAX_TOKENS:
      return "stopped at --max-tokens";
    case v1::FINISH_REASON_CONTEXT_LIMIT:
      return "the session is full";
    case v1::FINISH_REASON_SHUTDOWN:
      return "the server shuts down";
    case v1::FINISH_REASON_FORGOTTEN:
      return "a Forget left nothing to go on from";
    default:
      return "ended";
  }
}

std::string LogprobLine(const v1::GeneratedToken& token) {
  std::string line = absl::StrFormat("  %6d %9.4f  |", token.vocab_id(), token.logprob());
  for (const v1::Logprob& candidate : token.top_logprobs()) {
    absl::StrAppendFormat(&line, "  %d %.4f", candidate.vocab_id(), candidate.logprob());
  }
  return absl::StrCat(line, "\n");
}

}  // namespace

void GenerationPrinter::Print(const v1::GenerateResponse& event) {
  if (context_.json()) {
    context_.PrintJson(MessageToJson(event));
    return;
  }
  switch (event.event_case()) {
    case v1::GenerateResponse::kStarted:
      seed_ = event.started().seed();
      is_resumed_ = event.started().has_resumed_after_token_id();
      break;
    case v1::GenerateResponse::kDelta:
      PrintDelta(event.delta());
      break;
    case v1::GenerateResponse::kForgetNotice:
      Note(absl::StrCat(FormatCount(event.forget_notice().num_forgotten(), "input"),
                        " of this session forgotten; the answer goes on from ",
                        event.forget_notice().num_context_tokens()));
      break;
    case v1::GenerateResponse::kProgress:
      if (context_.io().err_is_terminal) {
        context_.err() << "\r\033[K"
                       << "reading the prompt: " << event.progress().num_prompt_tokens_done()
                       << " of " << FormatCount(event.progress().num_prompt_tokens(), "token")
                       << std::flush;
        progress_shown_ = true;
      }
      break;
    case v1::GenerateResponse::kFinished:
      PrintFinished(event.finished());
      break;
    case v1::GenerateResponse::EVENT_NOT_SET:
      break;
  }
}

void GenerationPrinter::PrintDelta(const v1::GenerationDelta& delta) {
  EndProgress();
  if (!delta.raw().empty() || !delta.text().empty()) {
    const std::string shown =
        context_.io().out_is_terminal ? SafeForTerminal(delta.text()) : delta.raw();
    context_.out() << shown << std::flush;
    line_open_ = shown.empty() ? line_open_ : shown.back() != '\n';
  }
  for (const v1::GeneratedToken& token : delta.tokens()) {
    if (token.has_logprob()) {
      logprob_lines_ += LogprobLine(token);
    }
  }
}

void GenerationPrinter::PrintFinished(const v1::GenerationFinished& finished) {
  EndProgress();
  EndLine();
  if (!logprob_lines_.empty()) {
    context_.err() << "  vocab_id logprob | most likely vocab_ids\n" << logprob_lines_;
  }
  if (quiet_) {
    return;
  }
  const v1::Usage& usage = finished.usage();
  std::string line = absl::StrCat("[", ReasonText(finished.reason()), "; prompt ",
                                  FormatCount(usage.num_prompt_tokens(), "token"), ", answer ",
                                  FormatCount(usage.num_generated_tokens(), "token"),
                                  " (token_ids ", FormatRange(finished.answer_token_ids()), ")");
  // The time is of the last part alone.
  if (!is_resumed_ && usage.num_generated_tokens() > 0 && usage.generation_us() > 0) {
    absl::StrAppendFormat(&line, ", %.0f tokens/s",
                          1e6 * static_cast<double>(usage.num_generated_tokens()) /
                              static_cast<double>(usage.generation_us()));
  }
  context_.err() << line << ", seed " << seed_ << "]\n" << std::flush;
}

void GenerationPrinter::Note(const std::string& text) {
  if (context_.json()) {
    return;
  }
  End();
  context_.err() << "[" << text << "]\n" << std::flush;
}

void GenerationPrinter::End() {
  EndProgress();
  EndLine();
}

void GenerationPrinter::EndProgress() {
  if (progress_shown_) {
    context_.err() << "\r\033[K" << std::flush;
    progress_shown_ = false;
  }
}

void GenerationPrinter::EndLine() {
  if (line_open_) {
    context_.out() << "\n" << std::flush;
    line_open_ = false;
  }
}

}  // namespace lethe::client
