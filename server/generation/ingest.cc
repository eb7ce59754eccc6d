#include "server/generation/ingest.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/session_registry/durable_entry.h"

namespace lethe {
namespace {

absl::Status CheckGoOn(const Call& call) {
  if (call.stopping()) {
    return WithErrorInfo(absl::UnavailableError("the server is shutting down"),
                         {"SHUTTING_DOWN", {}});
  }
  return call.Check();
}

// Completes the receipt, and makes inputs and receipt durable.
absl::Status StoreAppended(const RequestKey& request, const GenerationTarget& target,
                           SessionEntry* entry, AppendReceipt* receipt) {
  FairMutexLock lock(&entry->mutex);
  LETHE_ASSIGN_OR_RETURN(const Session* session, entry->LiveModelSession());
  LETHE_RETURN_IF_ERROR(target.CheckWriter());
  receipt->num_inputs = session->num_tokens();
  auto answer = std::make_shared<AppendAnswer>(*receipt);
  LETHE_RETURN_IF_ERROR(StoreInputs(request, *answer, entry));
  entry->requests.Remember(request, std::move(answer));
  return absl::OkStatus();
}

}  // namespace

int64_t RemainingTokens(const Session& session, int64_t history_tokens) {
  const int64_t most =
      history_tokens == 0 ? session.max_tokens() : std::min(session.max_tokens(), history_tokens);
  // An imported session may hold more.
  return std::max<int64_t>(most - session.num_tokens(), 0);
}

absl::Status CheckBudget(const Session& session, int64_t history_tokens, int64_t count,
                         absl::string_view field) {
  const int64_t remaining = RemainingTokens(session, history_tokens);
  if (count <= remaining) return absl::OkStatus();
  const bool is_ours = history_tokens != 0 && history_tokens < session.max_tokens();
  const std::string limit = is_ours ? "--history-tokens" : "the model's max_tokens";
  return WithErrorInfo(absl::InvalidArgumentError(absl::StrCat(
                           field, ": want at most ", remaining, " tokens, which is what ", limit,
                           " leaves this session; got ", count)),
                       {"CONTEXT_BUDGET",
                        {{"field", std::string(field)},
                         {"remaining_tokens", absl::StrCat(remaining)},
                         {"limit", is_ours ? "history-tokens" : "max_tokens"},
                         {"max", absl::StrCat(is_ours ? history_tokens : session.max_tokens())},
                         {"got", absl::StrCat(count)}}});
}

absl::StatusOr<TokenIdRange> Ingest(absl::Span<const int32_t> vocab_ids,
                                    const IngestOptions& options, const Call& call,
                                    ComputeScheduler* scheduler, GenerationTarget* target) {
  TokenIdRange given;
  size_t num_done = 0;
  const auto piece = [&]() -> absl::Status {
    LETHE_RETURN_IF_ERROR(CheckGoOn(call));
    const auto count =
        std::min(static_cast<size_t>(kIngestPieceTokens), vocab_ids.size() - num_done);
    return target->Run(call, scheduler, [&](Session* session, const HistoryMark& /*mark*/) {
      LETHE_RETURN_IF_ERROR(target->CheckWriter());
      const auto ids =
          session->Append(vocab_ids.subspan(num_done, count), options.subject, options.kind);
      if (!ids.ok()) return ids.status();
      if (num_done == 0) given.first = ids->front();
      given.end = ids->back() + 1;
      return absl::OkStatus();
    });
  };
  while (num_done < vocab_ids.size()) {
    absl::Status status = piece();
    num_done = std::min(num_done + static_cast<size_t>(kIngestPieceTokens), vocab_ids.size());
    if (status.ok() && options.on_piece && !options.on_piece(static_cast<int64_t>(num_done))) {
      status = absl::CancelledError("the client went away");
    }
    if (!status.ok()) {
      if (given.first < given.end) target->TakeBack(scheduler, {given});
      return status;
    }
  }
  return given;
}

absl::StatusOr<AppendReceipt> AppendInputs(const AppendCommand& command, const Call& call,
                                           ComputeScheduler* scheduler,
                                           const std::shared_ptr<SessionEntry>& entry) {
  std::unique_ptr<GenerationTarget> target;
  {
    FairMutexLock lock(&entry->mutex);
    LETHE_ASSIGN_OR_RETURN(const auto answer, entry->requests.Find<AppendAnswer>(command.request));
    if (answer != nullptr) return answer->receipt;
    LETHE_ASSIGN_OR_RETURN(const Session* session, entry->LiveModelSession());
    LETHE_RETURN_IF_ERROR(CheckBudget(*session, command.history_tokens,
                                      static_cast<int64_t>(command.vocab_ids.size()), "input"));
    LETHE_ASSIGN_OR_RETURN(target, GenerationTarget::OfSession(entry, command.subject));
  }
  IngestOptions options;
  options.subject = command.subject;
  options.kind = InputKind::kAppended;
  AppendReceipt receipt;
  LETHE_RETURN_IF_ERROR(target->Run(call, scheduler, [&](Session* session, const HistoryMark&) {
    return target->Reserve(*session, static_cast<int64_t>(command.vocab_ids.size()));
  }));
  LETHE_ASSIGN_OR_RETURN(receipt.token_ids,
                         Ingest(command.vocab_ids, options, call, scheduler, target.get()));
  const absl::Status stored = StoreAppended(command.request, *target, entry.get(), &receipt);
  if (!stored.ok()) {
    target->TakeBack(scheduler, {receipt.token_ids});
    return stored;
  }
  return receipt;
}

}  // namespace lethe
