#include "audit/crypto/aead.h"

#include <algorithm>
#include <memory>

#include <openssl/evp.h>

#include "audit/crypto/sha256.h"
#include "kernels/base/check.h"

namespace lethe::audit {
namespace {

// EVP_CIPHER_CTX_free cleanses the key schedule.
struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

// Fetched once: an implicit fetch per text costs more than sealing a short one.
const EVP_CIPHER* Method() {
  static const EVP_CIPHER* const kMethod = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  LETHE_CHECK(kMethod != nullptr);
  return kMethod;
}

// OpenSSL counts in int, and a null input means something else to it.
constexpr size_t kPieceBytes = size_t{1} << 30;

uint8_t* Bytes(std::string* text) { return reinterpret_cast<uint8_t*>(text->data()); }

bool AddAssociated(EVP_CIPHER_CTX* context, absl::string_view associated) {
  LETHE_CHECK(associated.size() < kPieceBytes);
  int written = 0;
  return associated.empty() ||
         EVP_CipherUpdate(context, nullptr, &written, AsByteSpan(associated).data(),
                          static_cast<int>(associated.size())) == 1;
}

bool Transform(EVP_CIPHER_CTX* context, absl::string_view from, uint8_t* to) {
  while (!from.empty()) {
    const size_t piece = std::min(from.size(), kPieceBytes);
    int written = 0;
    if (EVP_CipherUpdate(context, to, &written, AsByteSpan(from).data(), static_cast<int>(piece)) !=
        1) {
      return false;
    }
    from.remove_prefix(piece);
    to += piece;
  }
  return true;
}

}  // namespace

std::string SealAes256Gcm(const Secret32& key, absl::string_view associated,
                          absl::string_view plain) {
  const Context context(EVP_CIPHER_CTX_new());
  LETHE_CHECK(context != nullptr);
  std::string sealed(plain.size() + kAeadOverheadBytes, '\0');
  uint8_t* const nonce = Bytes(&sealed);
  RandomBytes(absl::MakeSpan(nonce, kAeadNonceBytes));
  LETHE_CHECK(EVP_EncryptInit_ex2(context.get(), Method(), key.bytes().data(), nonce, nullptr) ==
              1);
  LETHE_CHECK(AddAssociated(context.get(), associated));
  uint8_t* const tag = nonce + kAeadNonceBytes + plain.size();
  LETHE_CHECK(Transform(context.get(), plain, nonce + kAeadNonceBytes));
  int written = 0;
  LETHE_CHECK(EVP_EncryptFinal_ex(context.get(), tag, &written) == 1 && written == 0);
  LETHE_CHECK(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, kAeadTagBytes, tag) == 1);
  return sealed;
}

absl::StatusOr<std::string> OpenAes256Gcm(const Secret32& key, absl::string_view associated,
                                          absl::string_view sealed) {
  if (sealed.size() < kAeadOverheadBytes) {
    return absl::DataLossError("sealed text: shorter than nonce and tag");
  }
  const Context context(EVP_CIPHER_CTX_new());
  LETHE_CHECK(context != nullptr);
  const uint8_t* const nonce = AsByteSpan(sealed).data();
  LETHE_CHECK(EVP_DecryptInit_ex2(context.get(), Method(), key.bytes().data(), nonce, nullptr) ==
              1);
  LETHE_CHECK(AddAssociated(context.get(), associated));
  std::string plain(sealed.size() - kAeadOverheadBytes, '\0');
  LETHE_CHECK(
      Transform(context.get(), sealed.substr(kAeadNonceBytes, plain.size()), Bytes(&plain)));
  std::string tag(sealed.substr(sealed.size() - kAeadTagBytes));
  int written = 0;
  if (EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_SET_TAG, kAeadTagBytes, tag.data()) != 1 ||
      EVP_DecryptFinal_ex(context.get(), Bytes(&tag), &written) != 1) {
    SecureWipe(&plain);
    return absl::DataLossError("sealed text: is not authentic");
  }
  return plain;
}

}  // namespace lethe::audit
