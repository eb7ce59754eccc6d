// ProveHead, DraftHead, BundleOfHead: a support-vector head in statements and proof bundles.
//
// Equation:  none.
// Shapes:    token_ids: of all inputs of the state in rank order; the first num_keys of them name
//            the gated keys.
// Units:     a = alpha m in [0, 1].
// Requires:  token_ids.size() >= num_keys of every head (LETHE_CHECK); views are valid until the
//            state changes.
// Rejects:   ProveHead: what svdd::ProveOptimality rejects (an internal error here).
// Effects:   none.
// Numerics:  ProveHead is rigorous, its cost that of memory/svdd/proof.h; WitnessOfHead's that of
//            memory/svdd/witness.h.
// Threads:   compatible.
#ifndef LETHE_SERVER_CERTIFICATION_SV_HEADS_H_
#define LETHE_SERVER_CERTIFICATION_SV_HEADS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "audit/certificate/bundle.h"
#include "audit/certificate/recorder.h"
#include "memory/svdd/proof.h"
#include "server/session/sv_head.h"

namespace lethe {

// The witness of a head's partition; nothing where its proof needs none, or none was found.
std::optional<svdd::Witness> WitnessOfHead(const SvHead& head);

// P2 of a head; nothing for a head without gated keys.
absl::StatusOr<std::optional<svdd::OptimalityBounds>> ProveHead(
    const SvHead& head, const std::optional<svdd::Witness>& witness);

// True while alpha = 1/n exactly (n <= box mass): there is nothing to prove.
bool InWarmUp(const SvHead& head);

// The head's partition for a record, without bounds.
audit::MemoryDraft DraftHead(const SvHead& head, absl::Span<const uint64_t> token_ids);
// The head's keys, values, solution and witness for a proof bundle.
audit::BundleHead BundleOfHead(const SvHead& head, absl::Span<const uint64_t> token_ids,
                               std::optional<svdd::Witness> witness);

}  // namespace lethe

#endif  // LETHE_SERVER_CERTIFICATION_SV_HEADS_H_
