#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "audit/crypto/secret.h"
#include "kernels/base/status_macros.h"
#include "lethe/v1/generation.grpc.pb.h"
#include "server/error/error_info.h"
#include "server/generation/durable_sink.h"
#include "server/generation/generation.h"
#include "server/generation/pipelined_sink.h"
#include "server/generation/stop_matcher.h"
#include "server/rpc/grpc_call.h"
#include "server/rpc/message_conversion.h"
#include "server/rpc/services.h"
#include "server/rpc/validation.h"

namespace lethe {
namespace {

uint64_t RandomSeed() {
  std::array<uint8_t, sizeof(uint64_t)> bytes{};
  audit::RandomBytes(absl::MakeSpan(bytes));
  uint64_t seed = 0;
  std::memcpy(&seed, bytes.data(), sizeof seed);
  return seed;
}

absl::Status ReadSampling(const v1::SamplingParams& message, int64_t vocab_size,
                          SamplingParameters* sampling) {
  const auto in_range = [](absl::string_view field, bool ok, absl::string_view accepted) {
    return ok ? absl::OkStatus() : InvalidFieldError(absl::StrCat("sampling.", field), accepted);
  };
  if (message.has_temperature()) {
    LETHE_RETURN_IF_ERROR(CheckRange("sampling.temperature", message.temperature(), 0, 10));
    sampling->temperature = message.temperature();
  }
  if (message.has_top_k()) {
    LETHE_RETURN_IF_ERROR(CheckIntegerRange("sampling.top_k", message.top_k(), 0, vocab_size));
    sampling->top_k = message.top_k();
  }
  if (message.has_top_p()) {
    const bool ok = message.top_p() > 0 && message.top_p() <= 1;
    LETHE_RETURN_IF_ERROR(in_range("top_p", ok, "above 0, at most 1"));
    sampling->top_p = message.top_p();
  }
  if (message.has_min_p()) {
    const bool ok = message.min_p() >= 0 && message.min_p() < 1;
    LETHE_RETURN_IF_ERROR(in_range("min_p", ok, "at least 0, below 1"));
    sampling->min_p = message.min_p();
  }
  if (message.has_repetition_penalty()) {
    const bool ok = message.repetition_penalty() > 0 && message.repetition_penalty() <= 10;
    LETHE_RETURN_IF_ERROR(in_range("repetition_penalty", ok, "above 0, at most 10"));
    sampling->repetition_penalty = message.repetition_penalty();
  }
  sampling->seed = message.has_seed() ? message.seed() : RandomSeed();
  return absl::OkStatus();
}

absl::Status ReadOutput(const v1::OutputOptions& message, int64_t max_tokens,
                        GenerateCommand* command) {
  if (message.has_max_tokens()) {
    LETHE_RETURN_IF_ERROR(
        CheckIntegerRange("output.max_tokens", message.max_tokens(), 0, max_tokens));
    command->sampling.max_tokens = message.max_tokens();
  }
  bool stops_fit = static_cast<size_t>(message.stop_size()) <= kStopStringsMax;
  for (const std::string& stop : message.stop()) {
    stops_fit = stops_fit && !stop.empty() && stop.size() <= kStopStringBytesMax;
  }
  if (!stops_fit) {
    return InvalidFieldError("output.stop", absl::StrCat("at most ", kStopStringsMax, " of 1 to ",
                                                         kStopStringBytesMax, " bytes each"));
  }
  command->stop.assign(message.stop().begin(), message.stop().end());
  if (message.has_top_logprobs()) {
    LETHE_RETURN_IF_ERROR(CheckIntegerRange("output.top_logprobs", message.top_logprobs(), 0, 20));
    command->sampling.top_logprobs = message.top_logprobs();
    command->want_logprobs = true;
  }
  command->ignore_end_of_text = message.ignore_end_of_text();
  return absl::OkStatus();
}

// What a stream goes on from is no part of what was asked.
RequestKey KeyOf(const v1::GenerateRequest& request) {
  if (!request.has_last_token_id()) return MakeRequestKey(request, request.request_id());
  v1::GenerateRequest first = request;
  first.clear_last_token_id();
  return MakeRequestKey(first, request.request_id());
}

absl::StatusOr<GenerateCommand> ReadRequest(const v1::GenerateRequest& request, const Model& model,
                                            const Limits& limits) {
  GenerateCommand command;
  command.history_tokens = limits.history_tokens;
  if (request.has_prompt()) {
    LETHE_ASSIGN_OR_RETURN(command.prompt,
                           ReadContent("prompt", request.prompt(), model, limits.prompt_tokens));
  }
  LETHE_RETURN_IF_ERROR(CheckLabel("subject", request.subject()));
  LETHE_RETURN_IF_ERROR(CheckRequestId(request.request_id()));
  LETHE_RETURN_IF_ERROR(
      ReadSampling(request.sampling(), model.config().vocab_size, &command.sampling));
  LETHE_RETURN_IF_ERROR(ReadOutput(request.output(), model.config().max_tokens, &command));
  command.subject = request.subject();
  command.remember = request.has_remember() ? request.remember() : true;
  if (request.has_last_token_id()) {
    if (request.request_id().empty()) {
      return InvalidFieldError("last_token_id", "only with the request_id of the stream");
    }
    command.last_token_id = request.last_token_id();
  }
  command.request = KeyOf(request);
  return command;
}

v1::FinishReason ToMessage(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStopString:
      return v1::FINISH_REASON_STOP_STRING;
    case FinishReason::kEndOfText:
      return v1::FINISH_REASON_END_OF_TEXT;
    case FinishReason::kMaxTokens:
      return v1::FINISH_REASON_MAX_TOKENS;
    case FinishReason::kContextLimit:
      return v1::FINISH_REASON_CONTEXT_LIMIT;
    case FinishReason::kShutdown:
      return v1::FINISH_REASON_SHUTDOWN;
    case FinishReason::kForgotten:
      break;
  }
  return v1::FINISH_REASON_FORGOTTEN;
}

class WriterSink final : public GenerateSink {
 public:
  WriterSink(std::string model, ServerMetrics* metrics,
             grpc::ServerWriter<v1::GenerateResponse>* writer)
      : model_(std::move(model)), metrics_(metrics), writer_(writer) {}

  bool Started(const StartedEvent& event) override {
    v1::GenerateResponse response;
    v1::GenerationStarted* started = response.mutable_started();
    started->set_seed(event.seed);
    started->set_model(model_);
    started->set_num_context_tokens(event.num_context_tokens);
    if (event.prompt_token_ids.first < event.prompt_token_ids.end) {
      SetRange(event.prompt_token_ids, started->mutable_prompt_token_ids());
    }
    metrics_->num_input_tokens +=
        static_cast<int64_t>(event.prompt_token_ids.end - event.prompt_token_ids.first);
    if (event.resumed_after) started->set_resumed_after_token_id(*event.resumed_after);
    return writer_->Write(response);
  }

  bool Delta(const DeltaEvent& event) override {
    v1::GenerateResponse response;
    v1::GenerationDelta* delta = response.mutable_delta();
    delta->set_text(event.text);
    delta->set_raw(event.raw);
    metrics_->num_generated_tokens += static_cast<int64_t>(event.tokens.size());
    for (const GeneratedTokenEvent& token : event.tokens) {
      v1::GeneratedToken* added = delta->add_tokens();
      added->set_token_id(token.token_id);
      added->set_vocab_id(token.vocab_id);
      if (token.logprob) added->set_logprob(static_cast<float>(*token.logprob));
      for (const TokenLogprob& candidate : token.top_logprobs) {
        v1::Logprob* logprob = added->add_top_logprobs();
        logprob->set_vocab_id(candidate.vocab_id);
        logprob->set_logprob(static_cast<float>(candidate.logprob));
      }
    }
    return writer_->Write(response);
  }

  bool ForgetNotice(const ForgetNoticeEvent& event) override {
    v1::GenerateResponse response;
    response.mutable_forget_notice()->set_num_forgotten(event.num_forgotten);
    response.mutable_forget_notice()->set_num_context_tokens(event.num_context_tokens);
    return writer_->Write(response);
  }

  bool Progress(const ProgressEvent& event) override {
    v1::GenerateResponse response;
    response.mutable_progress()->set_num_prompt_tokens_done(event.num_prompt_tokens_done);
    response.mutable_progress()->set_num_prompt_tokens(event.num_prompt_tokens);
    return writer_->Write(response);
  }

  bool Finished(const FinishedEvent& event) override {
    v1::GenerateResponse response;
    v1::GenerationFinished* finished = response.mutable_finished();
    finished->set_reason(ToMessage(event.reason));
    finished->set_matched_stop(event.matched_stop);
    finished->set_num_invalid_utf8(event.num_invalid_utf8);
    if (event.answer_token_ids.first < event.answer_token_ids.end) {
      SetRange(event.answer_token_ids, finished->mutable_answer_token_ids());
    }
    v1::Usage* usage = finished->mutable_usage();
    usage->set_num_prompt_tokens(event.usage.num_prompt_tokens);
    usage->set_num_generated_tokens(event.usage.num_generated_tokens);
    usage->set_num_cached_tokens(event.usage.num_cached_tokens);
    usage->set_prompt_us(event.usage.prompt_us);
    usage->set_generation_us(event.usage.generation_us);
    return writer_->Write(response);
  }

 private:
  const std::string model_;
  ServerMetrics* const metrics_;
  grpc::ServerWriter<v1::GenerateResponse>* const writer_;
};

class GenerationService final : public v1::GenerationService::Service {
 public:
  explicit GenerationService(ServerCore* core) : core_(core) {}

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    return Serve("Generate", context, core_, [&](const Call& call) -> absl::Status {
      LETHE_ASSIGN_OR_RETURN(const auto entry, FindSession(*core_, call, request->session_id()));
      LETHE_RETURN_IF_ERROR(entry->CheckHasModel());
      LETHE_ASSIGN_OR_RETURN(const GenerateCommand command,
                             ReadRequest(*request, *entry->model, core_->limits));
      WriterSink writer_sink(entry->model->config().name, core_->metrics.get(), writer);
      DurableSink durable_sink(command.remember ? entry->journal.get() : nullptr, &writer_sink);
      std::optional<PipelinedSink> sink;
      try {
        sink.emplace(&durable_sink);
      } catch (const std::system_error& /*error*/) {
        return WithErrorInfo(absl::ResourceExhaustedError("no thread is left to send this stream"),
                             {"TOO_MANY_STREAMS", {}});
      }
      return lethe::Generate(command, call, &core_->scheduler, entry, &*sink);
    });
  }

 private:
  ServerCore* const core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeGenerationService(ServerCore* core) {
  return std::make_unique<GenerationService>(core);
}

}  // namespace lethe
