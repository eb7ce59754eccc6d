// WitnessKey, SignCosignature, VerifyCosignature: C2SP cosignature v1 by Ed25519 keys.
//
// Equation:  signed = "cosignature/v1\ntime " t "\n" || the checkpoint's text; a signature line's bytes behind the key id =
//            u64be t || 64-byte signature; key_id = SHA-256(name || 0x0A || 0x04 || pk32)[:4]; vkey = name + "+" +
//            hex8(key_id) + "+" + base64(0x04 || pk32).
// Shapes:    72 bytes behind the key id.
// Units:     t in seconds since 1970.
// Requires:  none.
// Rejects:   ParseWitnessKey: INVALID_ARGUMENT, as ParseVerifierKey. VerifyCosignature: NOT_FOUND without a line by this key;
//            INVALID_ARGUMENT where that line is wrong.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_LOG_COSIGNATURE_H_
#define LETHE_AUDIT_LOG_COSIGNATURE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/ed25519.h"
#include "audit/log/note.h"

namespace lethe::audit {

// Not a VerifierKey: the same name and key sign other bytes under another key id.
struct WitnessKey {
  std::string name;
  uint32_t key_id = 0;
  Ed25519PublicKey key;
};

absl::StatusOr<WitnessKey> MakeWitnessKey(absl::string_view name, const Ed25519PublicKey& key);
absl::StatusOr<WitnessKey> ParseWitnessKey(absl::string_view vkey);
std::string WriteWitnessKey(const WitnessKey& witness);

NoteSignature SignCosignature(absl::string_view text, uint64_t time_s, absl::string_view name,
                              const Ed25519PrivateKey& key);
// OK iff the note carries this witness's cosignature of its text; its time is not judged.
absl::Status VerifyCosignature(const SignedNote& note, const WitnessKey& witness);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_COSIGNATURE_H_
