#include "server/identity/authenticator.h"

#include <utility>

#include "absl/strings/match.h"

#include "audit/crypto/secret.h"
#include "kernels/base/status_macros.h"
#include "server/error/error_info.h"

namespace lethe {
namespace {

constexpr absl::string_view kScheme = "bearer ";
constexpr size_t kTokenBytesMax = 256;

std::optional<Principal> Find(CredentialFile* file, const audit::Sha256Digest& digest,
                              int64_t now_s) {
  if (file == nullptr) return std::nullopt;
  const CredentialFile::List list = file->Current();
  const Credential* credential = FindCredential(*list, digest, now_s);
  if (credential == nullptr) return std::nullopt;
  return credential->principal;
}

}  // namespace

absl::Status UnauthenticatedError() {
  return WithErrorInfo(
      absl::UnauthenticatedError("the call has no valid credential: want `authorization: Bearer "
                                 "TOKEN` in its metadata, or a client certificate that is known"),
      {"UNAUTHENTICATED", {}});
}

absl::StatusOr<std::unique_ptr<Authenticator>> Authenticator::Open(
    const AuthenticatorOptions& options, std::function<int64_t()> now_s) {
  std::unique_ptr<Authenticator> authenticator(new Authenticator(options, std::move(now_s)));
  if (!options.tokens_path.empty()) {
    LETHE_ASSIGN_OR_RETURN(authenticator->tokens_,
                           CredentialFile::Open("--tokens", options.tokens_path));
  }
  if (!options.certificates_path.empty()) {
    LETHE_ASSIGN_OR_RETURN(
        authenticator->certificates_,
        CredentialFile::Open("--client-certificates", options.certificates_path));
  }
  return authenticator;
}

std::optional<Principal> Authenticator::FindToken(
    const std::vector<absl::string_view>& authorization) const {
  if (authorization.size() != 1) return std::nullopt;
  absl::string_view token = authorization.front();
  if (!absl::StartsWithIgnoreCase(token, kScheme)) return std::nullopt;
  token.remove_prefix(kScheme.size());
  if (token.empty() || token.size() > kTokenBytesMax) return std::nullopt;
  return Find(tokens_.get(), audit::Sha256Of(token), now_s_());
}

std::optional<Principal> Authenticator::FindCertificate(const CallCredentials& credentials) const {
  if (!credentials.certificate.has_value()) return std::nullopt;
  const bool is_edge = edge_certificate_.has_value() &&
                       audit::ConstantTimeEqual(*edge_certificate_, *credentials.certificate);
  if (!is_edge) return Find(certificates_.get(), *credentials.certificate, now_s_());
  // The edge speaks for its clients and has no rights of its own.
  if (credentials.forwarded.size() != 1) return std::nullopt;
  const absl::StatusOr<audit::Sha256Digest> forwarded =
      ParseFingerprint(credentials.forwarded.front());
  if (!forwarded.ok()) return std::nullopt;
  return Find(certificates_.get(), *forwarded, now_s_());
}

absl::StatusOr<Principal> Authenticator::Authenticate(const CallCredentials& credentials) const {
  std::optional<Principal> principal = credentials.authorization.empty()
                                           ? FindCertificate(credentials)
                                           : FindToken(credentials.authorization);
  if (!principal.has_value()) return UnauthenticatedError();
  return *std::move(principal);
}

}  // namespace lethe
