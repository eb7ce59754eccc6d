// NumericsId: names the arithmetic of this build on this machine.
//
// Equation:  SHA-256 over the outputs of a fixed self-test: the elementary functions on a sweep of
//            arguments, the sampler, and logits and state parts of a synthetic model with every
//            layer and memory kind over 200 tokens, also after a replayed Forget
//            (docs/state-digest.md).
// Shapes:    32 bytes.
// Units:     none.
// Requires:  none.
// Rejects:   none.
// Effects:   computed at the first call (under a second) and kept.
// Numerics:  equal ids on two machines mean that the self-test's outputs agree bit for bit.
// Threads:   safe.
#ifndef LETHE_SERVER_MODEL_NUMERICS_ID_H_
#define LETHE_SERVER_MODEL_NUMERICS_ID_H_

#include "audit/crypto/sha256.h"

namespace lethe {

const audit::Sha256Digest& NumericsId();

}  // namespace lethe

#endif  // LETHE_SERVER_MODEL_NUMERICS_ID_H_
