#include "server/generation/resumption.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"
#include "server/generation/stop_matcher.h"

namespace lethe {
namespace {

absl::StatusOr<bool> IsComplete(const GenerateCommand& command, const AnswerPlace& place,
                                const Session& session) {
  const Inputs& inputs = session.inputs();
  const auto [first, end] = inputs.RanksOf({place.first, place.end});
  if (end - first >= place.max_tokens) return true;
  LETHE_ASSIGN_OR_RETURN(StopMatcher stop, StopMatcher::Create(command.stop));
  for (int64_t rank = first; rank < end; ++rank) {
    const int32_t vocab_id = inputs.at(rank).vocab_id;
    if (EndsText(vocab_id, command, session.model().config())) return true;
    if (stop.Append(session.model().TokenBytes(vocab_id)).stop_index.has_value()) return true;
  }
  return false;
}

bool IsBehind(const Session& session, const AnswerPlace& place) {
  const int64_t count = session.inputs().size();
  return count > 0 && session.inputs().at(count - 1).token_id >= place.end;
}

}  // namespace

absl::Status NotResumableError(absl::string_view why) {
  return WithErrorInfo(
      absl::FailedPreconditionError(absl::StrCat("last_token_id: the stream cannot go on: ", why)),
      {"NOT_RESUMABLE", {{"field", "last_token_id"}}});
}

absl::StatusOr<Resumption> Resumption::Plan(const GenerateAnswer& answer,
                                            const GenerateCommand& command, const Session& session,
                                            const HistoryMark& mark) {
  if (!answer.is_kept()) return NotResumableError("it ran with remember = false, on a copy");
  std::optional<GenerateCommand> asked = answer.Command();
  if (!asked.has_value()) {
    return NotResumableError("something of the session was forgotten since");
  }
  Resumption resumption;
  resumption.command = *std::move(asked);
  resumption.command.request = command.request;
  resumption.command.last_token_id = command.last_token_id;
  resumption.place = answer.place();
  resumption.mark = mark;
  LETHE_ASSIGN_OR_RETURN(resumption.is_complete,
                         IsComplete(resumption.command, resumption.place, session));
  if (!resumption.is_complete && IsBehind(session, resumption.place)) {
    return NotResumableError("the session has gone on since");
  }
  const AnswerPlace& place = resumption.place;
  StartedEvent& started = resumption.started;
  started.seed = resumption.command.sampling.seed;
  started.prompt_token_ids = {place.prompt_first, place.first};
  started.num_context_tokens = session.inputs().RanksOf({0, place.first}).second;
  const uint64_t last = command.last_token_id.value_or(0);
  const bool is_there =
      last >= place.first && last < place.end && session.inputs().FindRank(last) >= 0;
  started.resumed_after = is_there ? last : 0;
  return resumption;
}

}  // namespace lethe
