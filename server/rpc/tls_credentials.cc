#include "server/rpc/tls_credentials.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include <grpc/grpc.h>

#include "audit/crypto/secret.h"
#include "audit/crypto/tls_files.h"
#include "kernels/base/status_macros.h"
#include "server/diagnostics/log.h"

namespace lethe {
namespace {

// What gRPC's own classes do with a grpc_server_credentials; none of them takes a fetcher.
class CoreCredentials final : public grpc::ServerCredentials {
 public:
  explicit CoreCredentials(grpc_server_credentials* credentials) : credentials_(credentials) {}
  ~CoreCredentials() override { grpc_server_credentials_release(credentials_); }
  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

absl::StatusOr<std::string> ReadText(absl::string_view flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": cannot read ", path));
  }
  return text;
}

}  // namespace

TlsCredentials::~TlsCredentials() {
  MutexLock lock(&mutex_);
  audit::SecureWipe(&texts_.key);
}

absl::StatusOr<TlsCredentials::Texts> TlsCredentials::Read() const {
  Texts texts;
  LETHE_ASSIGN_OR_RETURN(texts.certificate, ReadText("--tls-cert", files_.certificate_path));
  LETHE_ASSIGN_OR_RETURN(texts.key, ReadText("--tls-key", files_.key_path));
  absl::Status status = audit::CheckCertificateAndKey(texts.certificate, texts.key);
  if (!status.ok()) {
    audit::SecureWipe(&texts.key);
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-cert ", files_.certificate_path, " and --tls-key: ", status.message()));
  }
  if (files_.client_ca_path.empty()) return texts;
  LETHE_ASSIGN_OR_RETURN(texts.client_ca, ReadText("--client-ca", files_.client_ca_path));
  status = audit::CheckCertificates(texts.client_ca);
  if (status.ok()) return texts;
  return absl::InvalidArgumentError(
      absl::StrCat("--client-ca ", files_.client_ca_path, ": ", status.message()));
}

absl::StatusOr<std::unique_ptr<TlsCredentials>> TlsCredentials::Open(const TlsFiles& files) {
  std::unique_ptr<TlsCredentials> credentials(new TlsCredentials(files));
  MutexLock lock(&credentials->mutex_);
  LETHE_ASSIGN_OR_RETURN(credentials->texts_, credentials->Read());
  return credentials;
}

grpc_ssl_certificate_config_reload_status TlsCredentials::Fetch(
    void* self, grpc_ssl_server_certificate_config** config) {
  return static_cast<TlsCredentials*>(self)->FetchNew(config);
}

grpc_ssl_certificate_config_reload_status TlsCredentials::FetchNew(
    grpc_ssl_server_certificate_config** config) {
  MutexLock lock(&mutex_);
  absl::StatusOr<Texts> read = Read();
  if (read.ok()) {
    reported_.clear();
    const bool same = read->certificate == texts_.certificate && read->key == texts_.key &&
                      read->client_ca == texts_.client_ca;
    std::swap(*read, texts_);
    audit::SecureWipe(&read->key);
    if (same && !is_first_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    if (!is_first_) LogInfo("the TLS files have changed and are in force for new connections");
  } else {
    if (reported_ != read.status().message()) {
      reported_ = std::string(read.status().message());
      LogError(absl::StrCat(reported_, "; what was read before stays in force"));
    }
    if (!is_first_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  }
  is_first_ = false;
  const grpc_ssl_pem_key_cert_pair pair = {texts_.key.c_str(), texts_.certificate.c_str()};
  *config = grpc_ssl_server_certificate_config_create(
      texts_.client_ca.empty() ? nullptr : texts_.client_ca.c_str(), &pair, 1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

std::shared_ptr<grpc::ServerCredentials> TlsCredentials::credentials() {
  grpc_ssl_client_certificate_request_type request = GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
  if (!files_.client_ca_path.empty()) {
    request = files_.require_client_certificate
                  ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                  : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
  }
  grpc_init();
  auto credentials =
      std::make_shared<CoreCredentials>(grpc_ssl_server_credentials_create_with_options(
          grpc_ssl_server_credentials_create_options_using_config_fetcher(request, Fetch, this)));
  grpc_shutdown();
  return credentials;
}

}  // namespace lethe
