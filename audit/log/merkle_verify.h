// VerifyInclusion, VerifyConsistency: the RFC 9162 checks of Merkle proofs (sections 2.1.3.2 and
// 2.1.4.2).
//
// Equation:  audit.md 3, and docs/audit-log.md in words.
// Shapes:    hashes are 32 bytes.
// Units:     sizes and indices count leaves.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT with the reason when the proof does not show what it should: a leaf
//            index outside the tree, a proof too short or too long, another root; consistency from
//            size 0 is refused (there is nothing to be consistent with).
// Effects:   none.
// Numerics:  none; cost O(proof length).
// Threads:   safe.
#ifndef LETHE_AUDIT_LOG_MERKLE_VERIFY_H_
#define LETHE_AUDIT_LOG_MERKLE_VERIFY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

#include "audit/crypto/sha256.h"

namespace lethe::audit {

struct InclusionClaim {
  uint64_t leaf_index = 0;
  uint64_t tree_size = 0;
  Sha256Digest leaf_hash{};
  Sha256Digest root_hash{};
};
absl::Status VerifyInclusion(const InclusionClaim& claim, absl::Span<const Sha256Digest> proof);

struct ConsistencyClaim {
  uint64_t old_size = 0;
  uint64_t new_size = 0;
  Sha256Digest old_root{};
  Sha256Digest new_root{};
};
absl::Status VerifyConsistency(const ConsistencyClaim& claim, absl::Span<const Sha256Digest> proof);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_MERKLE_VERIFY_H_
