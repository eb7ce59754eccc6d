// EvaluateRange, DigestPartsOf: what Append, Forget and roll-back share.
//
// Equation:  none.
// Shapes:    none.
// Units:     ranks.
// Requires:  state->num_tokens() = first; first <= end <= inputs.size() (checked by LETHE_CHECK).
// Rejects:   what ModelState::Evaluate rejects, and what the checkpoint says.
// Effects:   EvaluateRange advances the state to `end` and puts the snapshots that a head at `head`
//            keeps into the ladder.
// Numerics:  as ModelState.
// Threads:   compatible.
#ifndef LETHE_SERVER_SESSION_EVALUATION_H_
#define LETHE_SERVER_SESSION_EVALUATION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

#include "audit/state/state_digest.h"
#include "server/model/model_state.h"
#include "server/session/forget.h"
#include "server/session/inputs.h"
#include "server/session/snapshot_ladder.h"

namespace lethe {

absl::Status EvaluateRange(const Inputs& inputs, int64_t first, int64_t end, int64_t head,
                           ModelState* state, SnapshotLadder* ladder,
                           const Checkpoint& checkpoint = {});

// docs/state-digest.md, all parts.
audit::StateParts DigestPartsOf(const ModelState& state,
                                absl::Span<const int64_t> repetition_counts);

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_EVALUATION_H_
