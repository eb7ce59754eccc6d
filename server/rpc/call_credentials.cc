#include "server/rpc/call_credentials.h"

#include <string>

#include "absl/strings/escaping.h"
#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

#include "audit/crypto/sha256.h"

namespace lethe {
namespace {

std::vector<absl::string_view> ValuesOf(const grpc::ServerContextBase& context, const char* key) {
  std::vector<absl::string_view> values;
  const auto [begin, end] = context.client_metadata().equal_range(key);
  for (auto it = begin; it != end; ++it) {
    if (!it->second.empty()) values.emplace_back(it->second.data(), it->second.size());
  }
  return values;
}

// Of the first certificate in the text.
std::optional<audit::Sha256Digest> DigestOfPem(absl::string_view pem) {
  constexpr absl::string_view kBegin = "-----BEGIN CERTIFICATE-----";
  constexpr absl::string_view kEnd = "-----END CERTIFICATE-----";
  const size_t begin = pem.find(kBegin);
  const size_t end = pem.find(kEnd);
  std::string der;
  if (begin == absl::string_view::npos || end == absl::string_view::npos || end < begin ||
      !absl::Base64Unescape(pem.substr(begin + kBegin.size(), end - begin - kBegin.size()), &der)) {
    return std::nullopt;
  }
  return audit::Sha256Of(der);
}

}  // namespace

CallCredentials CredentialsOf(const grpc::ServerContextBase& context) {
  CallCredentials credentials;
  credentials.authorization = ValuesOf(context, kAuthorizationKey);
  credentials.forwarded = ValuesOf(context, kForwardedCertificateKey);
  const std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth == nullptr) return credentials;
  // Only what TLS has verified is there: nowhere do we ask for a certificate without that.
  const std::vector<grpc::string_ref> pem =
      auth->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (pem.size() == 1) {
    credentials.certificate = DigestOfPem(absl::string_view(pem[0].data(), pem[0].size()));
  }
  return credentials;
}

}  // namespace lethe
