// SealAes256Gcm, OpenAes256Gcm: authenticated encryption (AES-256-GCM, NIST SP 800-38D) over OpenSSL.
//
// Equation:  sealed = nonce || ciphertext || tag.
// Shapes:    nonce 12 bytes, tag 16 bytes: a sealed text is kAeadOverheadBytes longer than its plain text.
// Units:     bytes.
// Requires:  a key seals at most 2^32 texts. The nonce is drawn at random for every text, never counted: a
//            counter that a crash or a restored file sets back would be used twice. With a key a history
//            segment the chance that two nonces of one key are equal is below 2^-60 for 2^18 texts.
// Rejects:   Open: DATA_LOSS when the text is too short, or key, associated data or any bit of it is not
//            that of Seal. Seal aborts (LETHE_CHECK) where OpenSSL fails.
// Effects:   Open returns nothing of a text that is not authentic.
// Numerics:  none; cost O(bytes).
// Threads:   safe.
#ifndef LETHE_AUDIT_CRYPTO_AEAD_H_
#define LETHE_AUDIT_CRYPTO_AEAD_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/secret.h"

namespace lethe::audit {

inline constexpr size_t kAeadNonceBytes = 12;
inline constexpr size_t kAeadTagBytes = 16;
inline constexpr size_t kAeadOverheadBytes = kAeadNonceBytes + kAeadTagBytes;

std::string SealAes256Gcm(const Secret32& key, absl::string_view associated,
                          absl::string_view plain);
absl::StatusOr<std::string> OpenAes256Gcm(const Secret32& key, absl::string_view associated,
                                          absl::string_view sealed);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CRYPTO_AEAD_H_
