#include "audit/crypto/tls_files.h"

#include <memory>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

namespace lethe::audit {
namespace {

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using Held = std::unique_ptr<T, Free>;

Held<BIO> Reader(absl::string_view text) {
  return Held<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// In place of a prompt on the terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*is_writing*/, void* /*data*/) { return 0; }

Held<X509> ReadCertificate(BIO* bio) {
  return Held<X509>(PEM_read_bio_X509(bio, nullptr, NoPassphrase, nullptr));
}

}  // namespace

absl::Status CheckCertificateAndKey(absl::string_view certificate_pem, absl::string_view key_pem) {
  const Held<X509> certificate = ReadCertificate(Reader(certificate_pem).get());
  const Held<EVP_PKEY> key(
      PEM_read_bio_PrivateKey(Reader(key_pem).get(), nullptr, NoPassphrase, nullptr));
  const bool fits = certificate != nullptr && key != nullptr &&
                    X509_check_private_key(certificate.get(), key.get());
  ERR_clear_error();
  if (certificate == nullptr) return absl::InvalidArgumentError("want a certificate in PEM");
  if (key == nullptr) {
    return absl::InvalidArgumentError("want a private key in PEM, without a passphrase");
  }
  if (!fits) return absl::InvalidArgumentError("the private key is not the certificate's");
  return absl::OkStatus();
}

absl::Status CheckCertificates(absl::string_view pem) {
  const Held<BIO> bio = Reader(pem);
  int count = 0;
  while (ReadCertificate(bio.get()) != nullptr) ++count;
  // The end of the text is the only good reason to stop.
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (count > 0 && at_end) return absl::OkStatus();
  return absl::InvalidArgumentError("want certificates in PEM");
}

}  // namespace lethe::audit
