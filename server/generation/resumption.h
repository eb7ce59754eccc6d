// Resumption: where a stream that broke goes on, decided before anything of it is sent.
//
// Equation:  a token is a function of seed, rank and the retained history before it (generation.h), and what text a token
//            releases one of the answer's tokens up to it. So an answer whose retained tokens are gone through again, and
//            then drawn on, is the one that never broke.
// Shapes:    none.
// Units:     token_ids.
// Requires:  of Plan: the session's lock and its right to write are held; the answer has ended.
// Rejects:   Plan: FAILED_PRECONDITION, reason NOT_RESUMABLE, naming last_token_id: the answer was of a fork; a Forget
//            destroyed what it was asked; it is not complete, and other inputs stand behind it.
// Effects:   none.
// Numerics:  O(answer).
// Threads:   safe.
#ifndef LETHE_SERVER_GENERATION_RESUMPTION_H_
#define LETHE_SERVER_GENERATION_RESUMPTION_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "server/generation/generate_answer.h"
#include "server/generation/generation_events.h"
#include "server/session/session.h"
#include "server/session_registry/session_entry.h"

namespace lethe {

struct Resumption {
  static absl::StatusOr<Resumption> Plan(const GenerateAnswer& answer,
                                         const GenerateCommand& command, const Session& session,
                                         const HistoryMark& mark);

  GenerateCommand command;   // as the first one, without its prompt
  AnswerPlace place;         // as the stream before left it
  StartedEvent started;      // as the first one's, with resumed_after
  HistoryMark mark;          // of the history that this was found in
  bool is_complete = false;  // the retained tokens end the answer: nothing is to be drawn
};

// True for the token that ends the answer and has no text.
inline bool EndsText(int32_t vocab_id, const GenerateCommand& command, const ModelConfig& config) {
  return vocab_id == config.end_of_text && !command.ignore_end_of_text;
}

// Naming last_token_id, because of `why`.
absl::Status NotResumableError(absl::string_view why);

}  // namespace lethe

#endif  // LETHE_SERVER_GENERATION_RESUMPTION_H_
