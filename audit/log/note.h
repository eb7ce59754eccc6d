// SignedNote, VerifierKey: C2SP signed-note text and vkey strings with Ed25519 signatures.
//
// Equation:  note = text || "\n" || one or more lines "— <name> <base64(key_id4 || signature)>\n"
//            (U+2014); key_id = SHA-256(name || 0x0A || 0x01 || pk32)[:4], big-endian; vkey = name
//            + "+" + hex8(key_id) + "+" + base64(0x01 || pk32). The signature is over `text`, which
//            ends with a newline; the empty line after it is not signed.
// Shapes:    key ids 4 bytes; Ed25519 signature lines 4 + 64 bytes.
// Units:     bytes.
// Requires:  WriteNote: a text and names that ParseNote would accept.
// Rejects:   INVALID_ARGUMENT: over kNoteBytesMax bytes or kNoteSignaturesMax signatures, invalid
//            UTF-8, control characters but newline, no signature, a malformed line, two lines with
//            one name and key id. A name is non-empty, has no Unicode space and no '+'.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_LOG_NOTE_H_
#define LETHE_AUDIT_LOG_NOTE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/ed25519.h"

namespace lethe::audit {

inline constexpr size_t kNoteBytesMax = size_t{64} << 10;
inline constexpr size_t kNoteSignaturesMax = 64;

struct NoteSignature {
  std::string name;
  uint32_t key_id = 0;
  std::string signature;  // the bytes after the key id; 64 for Ed25519
};

struct SignedNote {
  std::string text;  // ends with a newline
  std::vector<NoteSignature> signatures;
};

absl::StatusOr<SignedNote> ParseNote(absl::string_view note);
std::string WriteNote(const SignedNote& note);

struct VerifierKey {
  std::string name;
  uint32_t key_id = 0;
  Ed25519PublicKey key;
};

absl::Status ValidateKeyName(absl::string_view name);
uint32_t NoteKeyId(absl::string_view name, const Ed25519PublicKey& key);
absl::StatusOr<VerifierKey> MakeVerifierKey(absl::string_view name, const Ed25519PublicKey& key);
absl::StatusOr<VerifierKey> ParseVerifierKey(absl::string_view vkey);
std::string WriteVerifierKey(const VerifierKey& vkey);

NoteSignature SignNoteText(absl::string_view text, absl::string_view name,
                           const Ed25519PrivateKey& key);

// OK iff some line is by `vkey` and it verifies. Unknown keys' lines are ignored; a line with
// vkey's name and key id whose signature fails makes the whole note refused (INVALID_ARGUMENT); no
// such line: NOT_FOUND.
absl::Status VerifyNote(const SignedNote& note, const VerifierKey& vkey);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_NOTE_H_
