// ProveHead, HeadSupportState: a bundle's support-vector head as the proof and as the digest see
// it.
//
// Equation:  memory/svdd/proof.h; audit/state/state_digest.h (SupportState).
// Shapes:    as BundleHead.
// Units:     as there.
// Requires:  a head that WriteBundle accepts.
// Rejects:   ProveHead: as svdd::MakeParams and svdd::ProveOptimality (INVALID_ARGUMENT naming the
//            field); a head without keys has nothing to prove and is refused.
// Effects:   none.
// Numerics:  keys widened from f32 to f64, exactly; bounds in outward-rounded double-double.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_HEAD_PROOF_H_
#define LETHE_AUDIT_CERTIFICATE_HEAD_PROOF_H_

#include "absl/status/statusor.h"

#include "audit/certificate/bundle.h"
#include "audit/certificate/statement.h"
#include "audit/state/state_digest.h"
#include "memory/svdd/proof.h"

namespace lethe::audit {

absl::StatusOr<svdd::OptimalityBounds> ProveHead(const BundleHead& head);

// The bounds as a statement prints them; evidence is left for the Recorder to fill in.
DeviationBounds ToDeviation(const svdd::OptimalityBounds& bounds);

// What this head contributes to the state digest, its Merkle root over keys and values included.
SupportState HeadSupportState(const BundleHead& head);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_HEAD_PROOF_H_
