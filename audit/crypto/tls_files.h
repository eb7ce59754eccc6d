// CheckCertificateAndKey, CheckCertificates: what a TLS server is configured with fits together, before a handshake finds out.
//
// Equation:  none.
// Shapes:    PEM; the server's own certificate first in its chain.
// Units:     none.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT naming what is wrong: no certificate, no private key that can be read without a passphrase, a
//            key of another certificate. Never what the texts hold.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_CRYPTO_TLS_FILES_H_
#define LETHE_AUDIT_CRYPTO_TLS_FILES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lethe::audit {

absl::Status CheckCertificateAndKey(absl::string_view certificate_pem, absl::string_view key_pem);

// One or more certificates and nothing that is none.
absl::Status CheckCertificates(absl::string_view pem);

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_CRYPTO_TLS_FILES_H_
