// ProveHead, WitnessHash, HeadSupportState, AppendHeadMemory: a bundle's support-vector head as the proof and as
// the digest see it.
//
// Equation:  memory/svdd/proof.h and readout_bound.h, hybrid readout; audit/state/state_digest.h
//            (SupportState); memory/svdd/sv_memory.h (AppendCanonicalState).
// Shapes:    as BundleHead.
// Units:     as there.
// Requires:  a head that WriteBundle accepts.
//            AppendHeadMemory: one with a tail (LETHE_CHECK).
// Rejects:   ProveHead: as svdd::MakeParams and svdd::ProveOptimality (INVALID_ARGUMENT naming the
//            field); a head without keys has nothing to prove and is refused.
// Effects:   none.
// Numerics:  keys widened from f32 to f64, exactly; bounds in outward-rounded double-double.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_HEAD_PROOF_H_
#define LETHE_AUDIT_CERTIFICATE_HEAD_PROOF_H_

#include <optional>

#include "absl/status/statusor.h"

#include "audit/certificate/bundle.h"
#include "audit/certificate/statement.h"
#include "audit/state/state_digest.h"
#include "kernels/base/byte_io.h"
#include "memory/svdd/proof.h"

namespace lethe::audit {

// Without a tail there is no readout bound: it would have to hold for values that are not there.
absl::StatusOr<svdd::OptimalityBounds> ProveHead(const BundleHead& head);

// H(f64 lambda, u64 number of a, f64 each), a double-double as high word, low word; nothing for none.
std::optional<Sha256Digest> WitnessHash(const std::optional<svdd::Witness>& witness);

// The bounds as a statement prints them; evidence is left for the Recorder to fill in.
DeviationBounds ToDeviation(const svdd::OptimalityBounds& bounds);

// What this head contributes to the state digest, its Merkle root over keys and values included.
SupportState HeadSupportState(const BundleHead& head);

// What this head contributes to the part "layer.I.group.G.memory" of its group: its solution and its
// tail.
void AppendHeadMemory(const BundleHead& head, ByteWriter* out);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_HEAD_PROOF_H_
