// LogLeaf: the entry of the audit log for one DSSE envelope, a hashedrekord 0.0.2 JSON of constant
// size.
//
// Equation:  {"apiVersion":"0.0.2","kind":"hashedrekord","spec":{"hashedRekordV002":{"data":
//            {"algorithm":"SHA2_256","digest":"B64(SHA-256(PAE))"},"signature":{"content":
//            "B64(signature)","verifier":{"keyDetails":"PKIX_ED25519","publicKey":{"rawBytes":
//            "B64(SPKI)"}}}}}}, one line, no newline.
// Shapes:    kLogLeafBytes bytes always, so that a leaf's size tells nothing about its record.
// Units:     bytes.
// Requires:  none.
// Rejects:   ParseLogLeaf: INVALID_ARGUMENT for any other bytes than WriteLogLeaf's.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_LOG_LEAF_H_
#define LETHE_AUDIT_LOG_LEAF_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/ed25519.h"
#include "audit/crypto/sha256.h"

namespace lethe::audit {

inline constexpr size_t kLogLeafBytes = 406;

struct LogLeaf {
  Sha256Digest pae_digest{};
  Ed25519Signature signature{};
  Ed25519PublicKey key;
};

std::string WriteLogLeaf(const LogLeaf& leaf);
absl::StatusOr<LogLeaf> ParseLogLeaf(absl::string_view bytes);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_LEAF_H_
