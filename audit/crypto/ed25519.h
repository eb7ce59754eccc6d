// Ed25519PublicKey, Ed25519PrivateKey: signatures (RFC 8032, pure Ed25519) over OpenSSL.
//
// Equation:  SPKI DER = 302a300506032b6570032100 || pk32 (RFC 8410).
// Shapes:    public key and seed 32 bytes, signature 64 bytes, SPKI DER 44 bytes.
// Units:     none.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT: a public key of another length, with a coordinate >= 2^255 - 19, or
//            of small order (OpenSSL 3.0 accepts a trivial signature on every message under the
//            identity key); a file that is no unencrypted Ed25519 PKCS#8 PEM. NOT_FOUND: no such
//            file. FAILED_PRECONDITION: a key file that others may read. ALREADY_EXISTS: Save never
//            overwrites.
// Effects:   SavePem writes a new file with mode 0600 and syncs it and its directory.
// Numerics:  signatures are deterministic.
// Threads:   safe (immutable objects).
#ifndef LETHE_AUDIT_CRYPTO_ED25519_H_
#define LETHE_AUDIT_CRYPTO_ED25519_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "audit/crypto/sha256.h"

namespace lethe::audit {

using Ed25519Signature = std::array<uint8_t, 64>;

inline constexpr size_t kEd25519KeyBytes = 32;
inline constexpr size_t kEd25519SpkiBytes = 44;

class Ed25519PublicKey {
 public:
  static absl::StatusOr<Ed25519PublicKey> FromRaw(absl::string_view raw);
  static absl::StatusOr<Ed25519PublicKey> FromSpkiDer(absl::string_view der);

  absl::string_view raw() const { return raw_; }
  std::string SpkiDer() const;
  // PEM "PUBLIC KEY" of the SPKI, as openssl reads it.
  std::string SpkiPem() const;
  // SHA-256(SPKI DER): the DSSE key id, in bytes.
  Sha256Digest KeyId() const;

  // False for a wrong signature and for one of another length.
  bool Verify(absl::string_view message, absl::string_view signature) const;

  friend bool operator==(const Ed25519PublicKey& a, const Ed25519PublicKey& b) {
    return a.raw_ == b.raw_;
  }

 private:
  explicit Ed25519PublicKey(std::string raw) : raw_(std::move(raw)) {}
  std::string raw_;
};

class Ed25519PrivateKey {
 public:
  static Ed25519PrivateKey Generate();
  static absl::StatusOr<Ed25519PrivateKey> FromSeed(absl::Span<const uint8_t> seed);
  static absl::StatusOr<Ed25519PrivateKey> LoadPem(const std::string& path);
  ~Ed25519PrivateKey();
  Ed25519PrivateKey(Ed25519PrivateKey&&) noexcept;
  Ed25519PrivateKey& operator=(Ed25519PrivateKey&&) noexcept;

  absl::Status SavePem(const std::string& path) const;

  const Ed25519PublicKey& public_key() const { return *public_key_; }
  Ed25519Signature Sign(absl::string_view message) const;

 private:
  struct Handle;
  explicit Ed25519PrivateKey(std::unique_ptr<Handle> handle);
  std::unique_ptr<Handle> handle_;
  std::unique_ptr<Ed25519PublicKey> public_key_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CRYPTO_ED25519_H_
