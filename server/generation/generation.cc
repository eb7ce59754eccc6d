#include "server/generation/generation.h"

#include <utility>

#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/generation/decode_loop.h"
#include "server/generation/generate_answer.h"
#include "server/generation/ingest.h"

namespace lethe {
namespace {

absl::Status CheckRepeat(const RequestTable& requests, const RequestKey& key) {
  LETHE_ASSIGN_OR_RETURN(const auto answer, requests.Find<GenerateAnswer>(key));
  if (answer == nullptr) return absl::OkStatus();
  if (answer->stage != GenerateStage::kEnded) {
    return WithErrorInfo(absl::AbortedError("request_id: this request is running"),
                         {"REQUEST_RUNNING", {{"field", "request_id"}}});
  }
  return WithErrorInfo(
      absl::AlreadyExistsError("request_id: this request has ended; a stream is not replayed"),
      {"REQUEST_DONE", {{"field", "request_id"}}});
}

absl::Status CheckContext(const GenerateCommand& command, const Session& session) {
  const auto num_prompt = static_cast<int64_t>(command.prompt.size());
  if (num_prompt + session.num_tokens() == 0) {
    return WithErrorInfo(
        absl::FailedPreconditionError("prompt: want at least one token, the session is empty"),
        {"EMPTY_CONTEXT", {{"field", "prompt"}}});
  }
  LETHE_RETURN_IF_ERROR(CheckBudget(session, num_prompt, "prompt"));
  if (!command.sampling.max_tokens.has_value()) return absl::OkStatus();
  return CheckBudget(session, num_prompt + *command.sampling.max_tokens, "output.max_tokens");
}

// Ends the entry of the request table whatever way the call ends.
void RememberEnd(const GenerateCommand& command, bool kept, const GenerationTarget& target,
                 SessionEntry* entry) {
  FairMutexLock lock(&entry->mutex);
  if (command.request.request_id.empty()) return;
  if (kept) {
    auto answer = std::make_shared<GenerateAnswer>(GenerateStage::kEnded, command);
    if (target.is_stopped()) answer->DropOpenings();  // its label was forgotten
    entry->requests.Remember(command.request, std::move(answer));
  } else {
    entry->requests.Remove(command.request.request_id);
  }
}

}  // namespace

absl::Status Generate(const GenerateCommand& command, const Call& call, ComputeScheduler* scheduler,
                      const std::shared_ptr<SessionEntry>& entry, GenerateSink* sink) {
  LETHE_ASSIGN_OR_RETURN(AnswerText text, AnswerText::Create(command.stop));
  std::unique_ptr<GenerationTarget> target;
  {
    FairMutexLock lock(&entry->mutex);
    LETHE_RETURN_IF_ERROR(CheckRepeat(entry->requests, command.request));
    LETHE_ASSIGN_OR_RETURN(const Session* session, entry->LiveModelSession());
    LETHE_RETURN_IF_ERROR(CheckContext(command, *session));
    // The slot bounds how many forks are copied at once.
    LETHE_ASSIGN_OR_RETURN(const ComputeSlot slot, scheduler->Acquire(call));
    LETHE_ASSIGN_OR_RETURN(target, command.remember
                                       ? GenerationTarget::OfSession(entry, command.subject)
                                       : GenerationTarget::OfFork(entry, command.subject));
    entry->requests.Remember(command.request,
                             std::make_shared<GenerateAnswer>(GenerateStage::kStarting, command));
  }
  DecodeLoop loop(command, call, scheduler, target.get(), sink, std::move(text));
  absl::Status status = loop.Start();
  const bool kept = status.ok();
  if (status.ok()) status = loop.Run();
  RememberEnd(command, kept, *target, entry.get());
  return status;
}

}  // namespace lethe
