// Commitments: the salted forms in which digests, token ids and partition rows enter a statement.
//
// Equation:  token = HMAC-SHA-256(certSalt, "tok\0" || u64be id); set root = RFC 6962 root over the
//            sorted token commitments, each one a leaf; row = token || class byte 'S', 'E' or 'R'
//            || u64be bits of a; rows root = RFC 6962 root in rank order; state =
//            HMAC-SHA-256(certSalt, state digest); evidence = HMAC-SHA-256(certSalt, "evidence\0" ||
//            hash of the part || hash of the witness, if any).
// Shapes:    spans of one head have equal length, one entry per key in rank order.
// Units:     a = alpha * m, in [0, 1].
// Requires:  equal lengths (LETHE_CHECK).
// Rejects:   none.
// Effects:   none.
// Numerics:  -0 is written as +0. Cost one HMAC per id.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_COMMITMENT_H_
#define LETHE_AUDIT_CERTIFICATE_COMMITMENT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"

#include "audit/certificate/statement.h"
#include "audit/crypto/secret.h"
#include "audit/crypto/sha256.h"

namespace lethe::audit {

// The Karush-Kuhn-Tucker class of a key.
enum class KeyClass : uint8_t { kMargin = 'S', kError = 'E', kReserve = 'R' };

Sha256Digest CommitToken(const Secret32& salt, uint64_t token_id);
Sha256Digest CommitState(const Secret32& salt, const Sha256Digest& state_digest);
// What a head's bounds were computed from: its part of the digest and, if there is one, its witness.
Sha256Digest CommitEvidence(const Secret32& salt, const Sha256Digest& part_hash,
                            const std::optional<Sha256Digest>& witness_hash);

CommittedSet CommitSet(const Secret32& salt, absl::Span<const uint64_t> token_ids);

struct PartitionRows {
  absl::Span<const uint64_t> token_ids;
  absl::Span<const KeyClass> classes;
  absl::Span<const double> a;
};
Sha256Digest CommitPartition(const Secret32& salt, const PartitionRows& rows);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_COMMITMENT_H_
