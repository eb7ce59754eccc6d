// Authenticator: who makes a call, by what the call itself brings: a bearer token, or the client certificate of its connection.
//
// Equation:  with a token the token decides; else the certificate that the edge names, on a connection of the edge's; else the
//            connection's certificate.
// Shapes:    authorization: values of the metadata "authorization", one "Bearer TOKEN" (RFC 6750; the word in any case). A
//            token: 1 to 256 bytes; `lethe token new` makes "lethe_" and 43 of base64url, 256 random bits. forwarded: values
//            of the metadata "x-lethe-client-cert-sha256", one of 64 hex digits.
// Units:     seconds since the epoch.
// Requires:  none.
// Rejects:   Open: as CredentialFile::Open. Authenticate: UNAUTHENTICATED, reason UNAUTHENTICATED, in the same words whatever
//            is wrong: no credential, two, a malformed, unknown, revoked or expired one.
// Effects:   reads the files again where they changed. Nothing about a call is kept for the next one.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_IDENTITY_AUTHENTICATOR_H_
#define LETHE_SERVER_IDENTITY_AUTHENTICATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "audit/crypto/sha256.h"
#include "kernels/base/wall_clock.h"
#include "server/identity/credential_file.h"
#include "server/identity/principal.h"

namespace lethe {

inline constexpr char kAuthorizationKey[] = "authorization";
inline constexpr char kForwardedCertificateKey[] = "x-lethe-client-cert-sha256";

// What a call brings. The views live as long as the call.
struct CallCredentials {
  std::vector<absl::string_view> authorization;
  std::vector<absl::string_view> forwarded;
  std::optional<audit::Sha256Digest> certificate;  // that the connection proved to have
};

// The one refusal of a call without a valid credential.
absl::Status UnauthenticatedError();

struct AuthenticatorOptions {
  std::string tokens_path;        // empty: no token is known
  std::string certificates_path;  // empty: no certificate is known
  std::optional<audit::Sha256Digest> edge_certificate;
};

class Authenticator {
 public:
  static absl::StatusOr<std::unique_ptr<Authenticator>> Open(
      const AuthenticatorOptions& options,
      std::function<int64_t()> now_s = [] { return NowMicros() / 1'000'000; });

  absl::StatusOr<Principal> Authenticate(const CallCredentials& credentials) const;

 private:
  Authenticator(const AuthenticatorOptions& options, std::function<int64_t()> now_s)
      : edge_certificate_(options.edge_certificate), now_s_(std::move(now_s)) {}
  std::optional<Principal> FindToken(const std::vector<absl::string_view>& authorization) const;
  std::optional<Principal> FindCertificate(const CallCredentials& credentials) const;

  std::unique_ptr<CredentialFile> tokens_;        // null: none
  std::unique_ptr<CredentialFile> certificates_;  // null: none
  const std::optional<audit::Sha256Digest> edge_certificate_;
  const std::function<int64_t()> now_s_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_IDENTITY_AUTHENTICATOR_H_
