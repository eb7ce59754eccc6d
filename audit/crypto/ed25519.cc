#include "audit/crypto/ed25519.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "audit/crypto/encoding.h"
#include "audit/crypto/key_file.h"
#include "audit/crypto/secret.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

// RFC 8410: SEQUENCE { SEQUENCE { OID 1.3.101.112 }, BIT STRING (33 bytes, no unused bits) }.
constexpr char kSpkiPrefix[] = "\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";
constexpr size_t kSpkiPrefixBytes = sizeof kSpkiPrefix - 1;

struct KeyDeleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using KeyPtr = std::unique_ptr<EVP_PKEY, KeyDeleter>;
struct BioDeleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using BioPtr = std::unique_ptr<BIO, BioDeleter>;
struct DigestContextDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using DigestContextPtr = std::unique_ptr<EVP_MD_CTX, DigestContextDeleter>;

// The y coordinates of the eight points whose order divides 8 (five values, the sign of x being a
// bit of its own), as in "Taming the many EdDSAs" (Chalkias, Garillot, Nikolaenko 2020), table 6,
// hex of the little-endian bytes.
constexpr const char* kSmallOrderY[] = {
    "0000000000000000000000000000000000000000000000000000000000000000",  // order 4
    "0100000000000000000000000000000000000000000000000000000000000000",  // order 1
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",  // order 8
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",  // order 8
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  // order 2
};

// y >= 2^255 - 19 in little-endian bytes: such an encoding has a smaller twin.
bool IsNonCanonical(const std::array<uint8_t, kEd25519KeyBytes>& y) {
  return y[31] == 0x7f && y[0] >= 0xed &&
         std::all_of(y.begin() + 1, y.begin() + 31, [](uint8_t byte) { return byte == 0xff; });
}

std::string RawPublicKey(EVP_PKEY* key) {
  std::string raw(kEd25519KeyBytes, '\0');
  size_t num_bytes = raw.size();
  LETHE_CHECK(EVP_PKEY_get_raw_public_key(key, reinterpret_cast<unsigned char*>(raw.data()),
                                          &num_bytes) == 1);
  LETHE_CHECK(num_bytes == kEd25519KeyBytes);
  return raw;
}

}  // namespace

absl::StatusOr<Ed25519PublicKey> Ed25519PublicKey::FromRaw(absl::string_view raw) {
  if (raw.size() != kEd25519KeyBytes) {
    return absl::InvalidArgumentError("Ed25519 public key is not 32 bytes");
  }
  std::array<uint8_t, kEd25519KeyBytes> y;
  std::copy(raw.begin(), raw.end(), y.begin());
  y[31] &= 0x7f;  // the top bit is the sign of x
  if (IsNonCanonical(y)) {
    return absl::InvalidArgumentError("Ed25519 public key has a coordinate of 2^255 - 19 or more");
  }
  const std::string y_hex = HexEncode(y);
  for (const char* small_order : kSmallOrderY) {
    if (y_hex == small_order) {
      return absl::InvalidArgumentError("Ed25519 public key is a point of small order");
    }
  }
  return Ed25519PublicKey(std::string(raw));
}

absl::StatusOr<Ed25519PublicKey> Ed25519PublicKey::FromSpkiDer(absl::string_view der) {
  const absl::string_view prefix(kSpkiPrefix, kSpkiPrefixBytes);
  if (der.size() != kEd25519SpkiBytes || der.substr(0, kSpkiPrefixBytes) != prefix) {
    return absl::InvalidArgumentError("public key is no Ed25519 SubjectPublicKeyInfo of 44 bytes");
  }
  return FromRaw(der.substr(kSpkiPrefixBytes));
}

std::string Ed25519PublicKey::SpkiDer() const {
  return std::string(kSpkiPrefix, kSpkiPrefixBytes) + raw_;
}

std::string Ed25519PublicKey::SpkiPem() const {
  return absl::StrCat("-----BEGIN PUBLIC KEY-----\n", Base64Encode(SpkiDer()),
                      "\n-----END PUBLIC KEY-----\n");
}

Sha256Digest Ed25519PublicKey::KeyId() const { return Sha256Of(SpkiDer()); }

bool Ed25519PublicKey::Verify(absl::string_view message, absl::string_view signature) const {
  if (signature.size() != sizeof(Ed25519Signature)) return false;
  const KeyPtr key(EVP_PKEY_new_raw_public_key(
      EVP_PKEY_ED25519, nullptr, reinterpret_cast<const unsigned char*>(raw_.data()), raw_.size()));
  LETHE_CHECK(key != nullptr);
  const DigestContextPtr context(EVP_MD_CTX_new());
  LETHE_CHECK(context != nullptr);
  LETHE_CHECK(EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1);
  return EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                          signature.size(), reinterpret_cast<const unsigned char*>(message.data()),
                          message.size()) == 1;
}

struct Ed25519PrivateKey::Handle {
  KeyPtr key;
};

Ed25519PrivateKey::Ed25519PrivateKey(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {
  absl::StatusOr<Ed25519PublicKey> public_key =
      Ed25519PublicKey::FromRaw(RawPublicKey(handle_->key.get()));
  // A clamped scalar times the base point is never of small order, and always canonical.
  LETHE_CHECK(public_key.ok());
  public_key_ = std::make_unique<Ed25519PublicKey>(*std::move(public_key));
}

Ed25519PrivateKey::~Ed25519PrivateKey() = default;
Ed25519PrivateKey::Ed25519PrivateKey(Ed25519PrivateKey&&) noexcept = default;
Ed25519PrivateKey& Ed25519PrivateKey::operator=(Ed25519PrivateKey&&) noexcept = default;

Ed25519PrivateKey Ed25519PrivateKey::Generate() {
  const Secret32 seed = Secret32::Random();
  absl::StatusOr<Ed25519PrivateKey> key = FromSeed(seed.bytes());
  LETHE_CHECK(key.ok());
  return *std::move(key);
}

absl::StatusOr<Ed25519PrivateKey> Ed25519PrivateKey::FromSeed(absl::Span<const uint8_t> seed) {
  if (seed.size() != kEd25519KeyBytes) {
    return absl::InvalidArgumentError("Ed25519 seed is not 32 bytes");
  }
  auto handle = std::make_unique<Handle>();
  handle->key.reset(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed.data(), seed.size()));
  LETHE_CHECK(handle->key != nullptr);
  return Ed25519PrivateKey(std::move(handle));
}

absl::StatusOr<Ed25519PrivateKey> Ed25519PrivateKey::LoadPem(const std::string& path) {
  LETHE_ASSIGN_OR_RETURN(std::string pem, ReadKeyFile(path));
  const BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  LETHE_CHECK(bio != nullptr);
  auto handle = std::make_unique<Handle>();
  // The empty password keeps OpenSSL from asking on the terminal for an encrypted file.
  char no_password[] = "";
  handle->key.reset(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, no_password));
  SecureWipe(&pem);
  if (handle->key == nullptr || EVP_PKEY_get_id(handle->key.get()) != EVP_PKEY_ED25519) {
    return absl::InvalidArgumentError(
        absl::StrCat("key file ", path, ": want an unencrypted Ed25519 private key in PEM"));
  }
  return Ed25519PrivateKey(std::move(handle));
}

absl::Status Ed25519PrivateKey::SavePem(const std::string& path) const {
  const BioPtr bio(BIO_new(BIO_s_secmem()));
  LETHE_CHECK(bio != nullptr);
  LETHE_CHECK(PEM_write_bio_PKCS8PrivateKey(bio.get(), handle_->key.get(), nullptr, nullptr, 0,
                                            nullptr, nullptr) == 1);
  char* data = nullptr;
  const long num_bytes = BIO_get_mem_data(bio.get(), &data);
  LETHE_CHECK(num_bytes > 0);
  return WriteKeyFile(path, absl::string_view(data, static_cast<size_t>(num_bytes)));
}

Ed25519Signature Ed25519PrivateKey::Sign(absl::string_view message) const {
  const DigestContextPtr context(EVP_MD_CTX_new());
  LETHE_CHECK(context != nullptr);
  LETHE_CHECK(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, handle_->key.get()) ==
              1);
  Ed25519Signature signature;
  size_t num_bytes = signature.size();
  LETHE_CHECK(EVP_DigestSign(context.get(), signature.data(), &num_bytes,
                             reinterpret_cast<const unsigned char*>(message.data()),
                             message.size()) == 1);
  LETHE_CHECK(num_bytes == signature.size());
  return signature;
}

}  // namespace lethe::audit
