#include "audit/certificate/keyset_record.h"

#include <string>

#include "audit/certificate/dsse.h"
#include "audit/certificate/statement.h"
#include "audit/log/leaf.h"
#include "audit/log/merkle_tree.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {

absl::Status AppendKeyset(const KeysetStatement& statement, const Ed25519PrivateKey& key,
                          AuditLog* log) {
  LETHE_ASSIGN_OR_RETURN(const std::string payload, WriteKeyset(statement));
  const DsseEnvelope envelope = SignEnvelope(kPayloadType, payload, key);
  const Sha256Digest pae_digest = Sha256Of(PreAuthEncoding(kPayloadType, payload));
  return log
      ->Append(WriteLogLeaf({pae_digest, envelope.signature, key.public_key()}),
               WriteEnvelope(envelope))
      .status();
}

absl::StatusOr<KeysetRecord> OpenKeyset(absl::string_view leaf, absl::string_view envelope) {
  LETHE_ASSIGN_OR_RETURN(const LogLeaf parsed, ParseLogLeaf(leaf));
  LETHE_ASSIGN_OR_RETURN(const DsseEnvelope opened, ParseEnvelope(envelope));
  const std::string pae = PreAuthEncoding(opened.payload_type, opened.payload);
  if (opened.payload_type != kPayloadType || Sha256Of(pae) != parsed.pae_digest ||
      opened.signature != parsed.signature ||
      !parsed.key.Verify(pae, AsStringView(opened.signature))) {
    return absl::InvalidArgumentError("envelope: is not that of its leaf");
  }
  LETHE_ASSIGN_OR_RETURN(KeysetStatement statement, ParseKeyset(opened.payload));
  return KeysetRecord{std::move(statement), parsed.key};
}

absl::StatusOr<KeysetRecord> LastKeyset(const AuditLog& log) {
  if (log.num_leaves() == 0) return absl::NotFoundError("the log is empty");
  LETHE_ASSIGN_OR_RETURN(const std::string leaf, log.Leaf(log.num_leaves() - 1));
  LETHE_ASSIGN_OR_RETURN(const std::string body, log.Body(MerkleLeafHash(leaf)));
  absl::StatusOr<KeysetRecord> record = OpenKeyset(leaf, body);
  if (!record.ok()) return absl::NotFoundError("the last leaf is no keyset record");
  return record;
}

}  // namespace lethe::audit
