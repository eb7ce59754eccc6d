// Sha256, Sha256Of, HmacSha256: SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104) over OpenSSL.
//
// Equation:  HMAC(k, m) = H((k ^ opad) || H((k ^ ipad) || m)), keys longer than 64 bytes hashed
//            first.
// Shapes:    a digest is 32 bytes, in the order in which SHA-256 prints it.
// Units:     lengths in bytes.
// Requires:  no Update or Finish after Finish (checked by LETHE_CHECK).
// Rejects:   none.
// Effects:   Finish and the destructor wipe the intermediate state, so no hashed byte stays in
//            memory.
// Numerics:  none; cost O(bytes).
// Threads:   compatible; the free functions are safe.
#ifndef LETHE_AUDIT_CRYPTO_SHA256_H_
#define LETHE_AUDIT_CRYPTO_SHA256_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lethe::audit {

inline constexpr size_t kSha256Bytes = 32;
using Sha256Digest = std::array<uint8_t, kSha256Bytes>;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  // Appends bytes to the message; returns *this, so that calls chain.
  Sha256& Update(absl::string_view bytes);
  Sha256& Update(absl::Span<const uint8_t> bytes);

  // The digest of everything appended. The object is spent afterwards.
  Sha256Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Sha256Digest Sha256Of(absl::string_view bytes);

Sha256Digest HmacSha256(absl::Span<const uint8_t> key, absl::string_view message);

// The same bytes seen as a string_view, and the other way round: no copy, same lifetime.
absl::string_view AsStringView(absl::Span<const uint8_t> bytes);
absl::Span<const uint8_t> AsByteSpan(absl::string_view text);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CRYPTO_SHA256_H_
