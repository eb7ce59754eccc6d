// Generate: appends a prompt, draws the answer token by token and tells a sink, without gRPC.
//
// Equation:  token at rank r drawn by Sample(logits after rank r - 1, seed, r): a function of the
//            request and the retained history.
// Shapes:    none.
// Units:     none.
// Requires:  the command passed the edge's checks (ranges of every field, vocab_ids, the seed set).
// Rejects:   FAILED_PRECONDITION, reason EMPTY_CONTEXT, naming prompt, with neither prompt nor
//            inputs; INVALID_ARGUMENT, reason CONTEXT_BUDGET, naming prompt or max_tokens; ABORTED,
//            reason SESSION_BUSY, REQUEST_RUNNING or SESSION_DELETED; ALREADY_EXISTS, reason
//            REQUEST_DONE; of a command with last_token_id, FAILED_PRECONDITION, reason
//            NOT_RESUMABLE; INTERNAL, reason NON_FINITE_LOGITS (the session keeps the tokens before
//            it); CANCELLED, DEADLINE_EXCEEDED; UNAVAILABLE, reason SHUTTING_DOWN, during the
//            prompt; reason SESSION_STORE.
// Effects:   remember = true: the session holds prompt and answer afterwards. A prompt counts as
//            sent when it has been evaluated whole: a cancellation before takes all of it back;
//            after that the session keeps exactly the tokens that the sink took. A drawn token is
//            in the history before the sink gets it. The lock is held for one piece of the prompt
//            or one token, so a Forget gets in between; the stream then tells it and goes on from
//            the new state. remember = false: all of this on a fork, which is dropped. With
//            last_token_id of an answer that is kept (resumption.h): its tokens, of which only those
//            behind that one are sent, then drawing goes on; tokens that were there stay whatever
//            becomes of the client.
// Numerics:  deterministic in (request, retained history).
// Threads:   safe; one thread per call.
#ifndef LETHE_SERVER_GENERATION_GENERATION_H_
#define LETHE_SERVER_GENERATION_GENERATION_H_

#include <memory>

#include "absl/status/status.h"

#include "server/generation/generation_events.h"
#include "server/scheduler/compute_scheduler.h"
#include "server/session_registry/session_entry.h"

namespace lethe {

absl::Status Generate(const GenerateCommand& command, const Call& call, ComputeScheduler* scheduler,
                      const std::shared_ptr<SessionEntry>& entry, GenerateSink* sink);

}  // namespace lethe

#endif  // LETHE_SERVER_GENERATION_GENERATION_H_
