// HexEncode, HexDecode, Base64Encode, Base64Decode: the text forms of bytes in our records,
// strictly read.
//
// Equation:  hex is lowercase, two digits a byte; base64 is RFC 4648 section 4 with padding.
// Shapes:    HexDecodeDigest and HexDecodeExact want exactly their number of bytes.
// Units:     none.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT: upper-case or odd-length hex; base64 with white space, missing or
//            misplaced padding or non-zero spare bits, so that every byte string has exactly one
//            accepted text (two with kAcceptUrlSafe: RFC 4648 section 5's alphabet too, but never
//            both mixed).
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_CRYPTO_ENCODING_H_
#define LETHE_AUDIT_CRYPTO_ENCODING_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "audit/crypto/sha256.h"

namespace lethe::audit {

std::string HexEncode(absl::string_view bytes);
std::string HexEncode(absl::Span<const uint8_t> bytes);
absl::StatusOr<std::string> HexDecode(absl::string_view hex);
absl::StatusOr<Sha256Digest> HexDecodeDigest(absl::string_view hex);

enum class Base64Alphabet { kStandard, kAcceptUrlSafe };

std::string Base64Encode(absl::string_view bytes);
std::string Base64Encode(absl::Span<const uint8_t> bytes);
absl::StatusOr<std::string> Base64Decode(absl::string_view base64,
                                         Base64Alphabet alphabet = Base64Alphabet::kStandard);

// A digest from exactly 32 bytes.
absl::StatusOr<Sha256Digest> DigestFromBytes(absl::string_view bytes);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CRYPTO_ENCODING_H_
