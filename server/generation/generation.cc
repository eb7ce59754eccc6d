#include "server/generation/generation.h"

#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/diagnostics/log.h"
#include "server/error/error_info.h"
#include "server/generation/decode_loop.h"
#include "server/generation/generate_answer.h"
#include "server/generation/ingest.h"
#include "server/generation/resumption.h"
#include "server/session_registry/durable_entry.h"

namespace lethe {
namespace {

absl::Status RepeatError(const GenerateAnswer& answer) {
  if (answer.stage() != GenerateStage::kEnded) {
    return WithErrorInfo(absl::AbortedError("request_id: this request is running"),
                         {"REQUEST_RUNNING", {{"field", "request_id"}}});
  }
  return WithErrorInfo(
      absl::AlreadyExistsError("request_id: this request has ended; a repeat goes on with its "
                               "stream when it has last_token_id"),
      {"REQUEST_DONE", {{"field", "request_id"}}});
}

// The answer to go on with; null: the request is new.
absl::StatusOr<std::shared_ptr<const GenerateAnswer>> FindAnswer(const RequestTable& requests,
                                                                 const GenerateCommand& command) {
  auto answer = requests.Find<GenerateAnswer>(command.request);
  const bool goes_on = command.last_token_id.has_value();
  if (goes_on && requests.IsForgotten(command.request.request_id)) {
    return NotResumableError("something of the session was forgotten since");
  }
  if (!answer.ok()) return answer;
  if (*answer == nullptr) {
    if (command.last_token_id.value_or(0) == 0) return answer;
    return NotResumableError("the session does not know this request_id");
  }
  if (!goes_on || (*answer)->stage() != GenerateStage::kEnded) return RepeatError(**answer);
  return answer;
}

absl::Status CheckContext(const GenerateCommand& command, const Session& session) {
  const auto num_prompt = static_cast<int64_t>(command.prompt.size());
  if (num_prompt + session.num_tokens() == 0) {
    return WithErrorInfo(
        absl::FailedPreconditionError("prompt: want at least one token, the session is empty"),
        {"EMPTY_CONTEXT", {{"field", "prompt"}}});
  }
  LETHE_RETURN_IF_ERROR(CheckBudget(session, command.history_tokens, num_prompt, "prompt"));
  if (!command.sampling.max_tokens.has_value()) return absl::OkStatus();
  return CheckBudget(session, command.history_tokens, num_prompt + *command.sampling.max_tokens,
                     "output.max_tokens");
}

// The right to write, and the request as running.
absl::Status Begin(const GenerateCommand& command, const Call& call, ComputeScheduler* scheduler,
                   const std::shared_ptr<SessionEntry>& entry,
                   std::unique_ptr<GenerationTarget>* target)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex) {
  LETHE_ASSIGN_OR_RETURN(const Session* session, entry->LiveModelSession());
  LETHE_RETURN_IF_ERROR(CheckContext(command, *session));
  // The slot bounds how many forks are copied at once.
  LETHE_ASSIGN_OR_RETURN(const ComputeSlot slot, scheduler->Acquire(call));
  LETHE_ASSIGN_OR_RETURN(*target, command.remember
                                      ? GenerationTarget::OfSession(entry, command.subject)
                                      : GenerationTarget::OfFork(entry, command.subject));
  entry->requests.Remember(command.request, std::make_shared<GenerateAnswer>(command));
  return absl::OkStatus();
}

// The same to go on with `answer`; what is drawn is stored behind the note that it runs again.
absl::StatusOr<Resumption> BeginAgain(const GenerateAnswer& answer, const GenerateCommand& command,
                                      const std::shared_ptr<SessionEntry>& entry,
                                      std::unique_ptr<GenerationTarget>* target)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(entry->mutex) {
  LETHE_ASSIGN_OR_RETURN(const Session* session, entry->LiveModelSession());
  LETHE_ASSIGN_OR_RETURN(*target, GenerationTarget::OfSession(entry, command.subject));
  LETHE_ASSIGN_OR_RETURN(Resumption resumption,
                         Resumption::Plan(answer, command, *session, entry->mark));
  auto running = std::make_shared<GenerateAnswer>(answer);
  running->RunAgain(!resumption.is_complete);
  if (!resumption.is_complete) {
    LETHE_RETURN_IF_ERROR(StoreRequest(command.request, *running, entry.get()));
  }
  entry->requests.Remember(command.request, std::move(running));
  return resumption;
}

// Ends the entry of the request table whatever way the call ends. A Forget meanwhile has destroyed what it holds. Who finds
// it ended finds the session free.
void RememberEnd(const RequestKey& request, bool kept, GenerationTarget* target,
                 SessionEntry* entry) {
  FairMutexLock lock(&entry->mutex);
  if (request.request_id.empty() || entry->session == nullptr) return;
  if (!kept) return entry->requests.Remove(request.request_id);
  const auto running = entry->requests.Find<GenerateAnswer>(request);
  if (!running.ok() || *running == nullptr) return;
  auto ended = std::make_shared<GenerateAnswer>(**running);
  if (ended->EndAt(static_cast<const Session&>(*entry->session).next_token_id())) {
    if (const absl::Status stored = StoreRequest(request, *ended, entry); !stored.ok()) {
      entry->requests_unstored = true;
      LogError(absl::StrCat("the end of an answer is not stored yet: ", stored.message()));
    }
  }
  entry->requests.Remember(request, std::move(ended));
  target->EndWrite();
}

}  // namespace

absl::Status Generate(const GenerateCommand& command, const Call& call, ComputeScheduler* scheduler,
                      const std::shared_ptr<SessionEntry>& entry, GenerateSink* sink) {
  LETHE_ASSIGN_OR_RETURN(AnswerText text, AnswerText::Create(command.stop));
  std::unique_ptr<GenerationTarget> target;
  std::optional<Resumption> resumption;
  {
    FairMutexLock lock(&entry->mutex);
    LETHE_ASSIGN_OR_RETURN(const auto answer, FindAnswer(entry->requests, command));
    if (answer == nullptr) {
      LETHE_RETURN_IF_ERROR(Begin(command, call, scheduler, entry, &target));
    } else {
      LETHE_ASSIGN_OR_RETURN(resumption, BeginAgain(*answer, command, entry, &target));
    }
  }
  DecodeLoop loop(resumption ? resumption->command : command, call, scheduler, target.get(), sink,
                  std::move(text));
  absl::Status status = resumption ? loop.Resume(*resumption) : loop.Start();
  const bool kept = status.ok() || resumption.has_value();
  if (status.ok()) status = loop.Run();
  RememberEnd(command.request, kept, target.get(), entry.get());
  return status;
}

}  // namespace lethe
