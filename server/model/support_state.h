// SupportStateOf: a support-vector head as the state digest holds it.
//
// Equation:  audit/state/state_digest.h.
// Shapes:    solution of the first num_keys inputs, inputs_root over their leaves.
// Units:     a = alpha m in [0, 1].
// Requires:  none.
// Rejects:   none.
// Effects:   none.
// Numerics:  copies.
// Threads:   safe.
#ifndef LETHE_SERVER_MODEL_SUPPORT_STATE_H_
#define LETHE_SERVER_MODEL_SUPPORT_STATE_H_

#include "audit/crypto/sha256.h"
#include "audit/state/state_digest.h"
#include "memory/svdd/problem.h"

namespace lethe {

audit::SupportState SupportStateOf(const svdd::Params& params, const svdd::Solution& solution,
                                   const audit::Sha256Digest& inputs_root);

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_SUPPORT_STATE_H_
