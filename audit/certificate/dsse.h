// DsseEnvelope: a signed payload, Dead Simple Signing Envelope 1.0.2, with exactly one Ed25519
// signature.
//
// Equation:  PAE = "DSSEv1" SP LEN(type) SP type SP LEN(body) SP body; the signature is over PAE.
// Shapes:    signature 64 bytes; key_id = lowercase hex SHA-256(SPKI DER), a hint only.
// Units:     LEN is the decimal byte count.
// Requires:  none.
// Rejects:   ParseEnvelope: INVALID_ARGUMENT: no JSON object, unknown, repeated or missing fields,
//            another number of signatures than one, a signature that is not 64 bytes, malformed
//            base64, over kEnvelopeBytesMax bytes. White space and field order are free, base64 may
//            be URL-safe (as DSSE wants).
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_CERTIFICATE_DSSE_H_
#define LETHE_AUDIT_CERTIFICATE_DSSE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/ed25519.h"

namespace lethe::audit {

inline constexpr size_t kEnvelopeBytesMax = size_t{2} << 20;

struct DsseEnvelope {
  std::string payload_type;
  std::string payload;
  std::string key_id;
  Ed25519Signature signature{};
};

std::string PreAuthEncoding(absl::string_view payload_type, absl::string_view payload);

DsseEnvelope SignEnvelope(absl::string_view payload_type, absl::string_view payload,
                          const Ed25519PrivateKey& key);
std::string WriteEnvelope(const DsseEnvelope& envelope);
absl::StatusOr<DsseEnvelope> ParseEnvelope(absl::string_view json);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CERTIFICATE_DSSE_H_
