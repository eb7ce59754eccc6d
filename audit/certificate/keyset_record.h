// AppendKeyset, LastKeyset: keyset statements as records of a log.
//
// Equation:  keyset.h, dsse.h, leaf.h.
// Shapes:    none.
// Units:     leaf indices.
// Requires:  none.
// Rejects:   as WriteKeyset and AuditLog::Append. LastKeyset: NOT_FOUND when the last leaf is no keyset record, or has no body.
// Effects:   AppendKeyset appends one leaf with its envelope.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_KEYSET_RECORD_H_
#define LETHE_AUDIT_CERTIFICATE_KEYSET_RECORD_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "audit/certificate/keyset.h"
#include "audit/crypto/ed25519.h"
#include "audit/log/audit_log.h"

namespace lethe::audit {

absl::Status AppendKeyset(const KeysetStatement& statement, const Ed25519PrivateKey& key,
                          AuditLog* log);

struct KeysetRecord {
  KeysetStatement statement;
  Ed25519PublicKey signer;
};
absl::StatusOr<KeysetRecord> LastKeyset(const AuditLog& log);

// The statement of this envelope, if it is one and the leaf's key signed it.
absl::StatusOr<KeysetRecord> OpenKeyset(absl::string_view leaf, absl::string_view envelope);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_KEYSET_RECORD_H_
