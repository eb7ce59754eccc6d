// RandomBytes, SecureWipe, ConstantTimeEqual, Secret32: handling of salts and keys.
//
// Equation:  none.
// Shapes:    Secret32 holds 32 bytes.
// Units:     none.
// Requires:  none.
// Rejects:   RandomBytes aborts (LETHE_CHECK) when the system has no randomness: a salt that can be
//            guessed would falsify every certificate that uses it.
// Effects:   SecureWipe overwrites with zeros in a way that compilers keep; Secret32 wipes itself.
// Numerics:  ConstantTimeEqual's time depends on the lengths alone.
// Threads:   safe (Secret32: compatible).
#ifndef LETHE_AUDIT_CRYPTO_SECRET_H_
#define LETHE_AUDIT_CRYPTO_SECRET_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lethe::audit {

void RandomBytes(absl::Span<uint8_t> out);

void SecureWipe(void* data, size_t num_bytes);
// Wipes a string's whole buffer and leaves it empty.
void SecureWipe(std::string* text);

bool ConstantTimeEqual(absl::Span<const uint8_t> a, absl::Span<const uint8_t> b);

// 32 secret bytes (a salt or a MAC key). Copies are explicit; every copy wipes itself.
class Secret32 {
 public:
  static Secret32 Random();
  static Secret32 FromBytes(const std::array<uint8_t, 32>& bytes);
  Secret32(const Secret32& other) = default;
  Secret32& operator=(const Secret32& other) = default;
  ~Secret32();

  absl::Span<const uint8_t> bytes() const { return bytes_; }

 private:
  Secret32() = default;
  std::array<uint8_t, 32> bytes_{};
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CRYPTO_SECRET_H_
