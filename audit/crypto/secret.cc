#include "audit/crypto/secret.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include "kernels/base/check.h"

namespace lethe::audit {

void RandomBytes(absl::Span<uint8_t> out) {
  LETHE_CHECK(out.empty() || RAND_bytes(out.data(), static_cast<int>(out.size())) == 1);
}

void SecureWipe(void* data, size_t num_bytes) { OPENSSL_cleanse(data, num_bytes); }

void SecureWipe(std::string* text) {
  // The whole capacity: bytes of an earlier, longer value may lie behind size().
  text->resize(text->capacity());
  SecureWipe(text->data(), text->size());
  text->clear();
}

bool ConstantTimeEqual(absl::Span<const uint8_t> a, absl::Span<const uint8_t> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Secret32 Secret32::Random() {
  Secret32 secret;
  RandomBytes(absl::MakeSpan(secret.bytes_));
  return secret;
}

Secret32 Secret32::FromBytes(const std::array<uint8_t, 32>& bytes) {
  Secret32 secret;
  secret.bytes_ = bytes;
  return secret;
}

Secret32::~Secret32() { SecureWipe(bytes_.data(), bytes_.size()); }

}  // namespace lethe::audit
