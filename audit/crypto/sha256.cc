#include "audit/crypto/sha256.h"

#include <utility>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "kernels/base/check.h"

namespace lethe::audit {
namespace {

// Fetched once: an implicit fetch per message costs more than hashing a short one.
const EVP_MD* Sha256Method() {
  static const EVP_MD* const kMethod = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  LETHE_CHECK(kMethod != nullptr);
  return kMethod;
}

}  // namespace

// EVP_MD_CTX_free cleanses the algorithm's context, which is what keeps hashed bytes out of the
// heap.
struct Sha256::State {
  State() : context(EVP_MD_CTX_new()) {
    LETHE_CHECK(context != nullptr);
    LETHE_CHECK(EVP_DigestInit_ex2(context, Sha256Method(), nullptr) == 1);
  }
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  EVP_MD_CTX* context;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

Sha256& Sha256::Update(absl::string_view bytes) {
  LETHE_CHECK(state_ != nullptr);
  LETHE_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
  return *this;
}

Sha256& Sha256::Update(absl::Span<const uint8_t> bytes) { return Update(AsStringView(bytes)); }

Sha256Digest Sha256::Finish() {
  LETHE_CHECK(state_ != nullptr);
  Sha256Digest digest;
  unsigned int digest_bytes = 0;
  LETHE_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &digest_bytes) == 1);
  LETHE_CHECK(digest_bytes == kSha256Bytes);
  state_.reset();
  return digest;
}

Sha256Digest Sha256Of(absl::string_view bytes) { return Sha256().Update(bytes).Finish(); }

Sha256Digest HmacSha256(absl::Span<const uint8_t> key, absl::string_view message) {
  Sha256Digest digest;
  unsigned int digest_bytes = 0;
  // OpenSSL reads a null key as "reuse the last one": an empty key needs an address.
  const uint8_t empty = 0;
  const uint8_t* key_data = key.empty() ? &empty : key.data();
  LETHE_CHECK(HMAC(Sha256Method(), key_data, static_cast<int>(key.size()),
                   reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                   digest.data(), &digest_bytes) != nullptr);
  LETHE_CHECK(digest_bytes == kSha256Bytes);
  return digest;
}

absl::string_view AsStringView(absl::Span<const uint8_t> bytes) {
  return absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

absl::Span<const uint8_t> AsByteSpan(absl::string_view text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

}  // namespace lethe::audit
