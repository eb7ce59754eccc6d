#include "server/identity_options.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include <CLI/CLI.hpp>
#include <arpa/inet.h>

#include "kernels/base/status_macros.h"
#include "server/rpc/listen_address.h"

namespace lethe {
namespace {

CLI::Validator Fingerprint() {
  return CLI::Validator(
      [](const std::string& text) {
        const bool ok = text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
                          return absl::ascii_isxdigit(static_cast<unsigned char>(c));
                        });
        return ok ? "" : "want 64 hex digits, as openssl x509 -outform DER | sha256sum gives them";
      },
      "");
}

absl::Status Wants(const char* flag, const char* other) {
  return absl::InvalidArgumentError(absl::StrCat(flag, " wants ", other, " beside it"));
}

absl::Status CheckTogether(const IdentityOptions& options) {
  if (options.tls_certificate_path.empty() != options.tls_key_path.empty()) {
    return options.tls_key_path.empty() ? Wants("--tls-cert", "--tls-key")
                                        : Wants("--tls-key", "--tls-cert");
  }
  if (!options.client_ca_path.empty() && options.tls_certificate_path.empty()) {
    return Wants("--client-ca", "--tls-cert");
  }
  if (!options.client_ca_path.empty() && !options.asks_for_credentials()) {
    return Wants("--client-ca", "--client-certificates (or --tokens)");
  }
  if (!options.certificates_path.empty() && options.client_ca_path.empty()) {
    return Wants("--client-certificates", "--client-ca");
  }
  if (!options.edge_certificate.empty() && options.client_ca_path.empty()) {
    return Wants("--edge-cert-sha256", "--client-ca");
  }
  return absl::OkStatus();
}

}  // namespace

void AddIdentityOptions(CLI::App* app, IdentityOptions* options) {
  CLI::Option_group* group =
      app->add_option_group("Identity",
                            "Who may call (docs/security.md); all files are read again "
                            "when they change, without a restart");
  group
      ->add_option("--tokens", options->tokens_path,
                   "Bearer tokens, one a line: TENANT NAME ROLES EXPIRES SHA256; `lethe token new` "
                   "makes one. With this or --client-certificates every call needs a credential")
      ->type_name("FILE");
  group
      ->add_option("--client-certificates", options->certificates_path,
                   "Client certificates that are known, one a line as in --tokens, by the SHA-256 "
                   "of their DER")
      ->type_name("FILE");
  group
      ->add_option("--tls-cert", options->tls_certificate_path,
                   "Serve TLS (1.2 or newer) with this certificate chain (PEM)")
      ->type_name("FILE");
  group->add_option("--tls-key", options->tls_key_path, "Its private key (PEM)")->type_name("FILE");
  group
      ->add_option("--client-ca", options->client_ca_path,
                   "Mutual TLS: take clients' certificates from this CA (PEM); one is needed but "
                   "where --tokens are known too")
      ->type_name("FILE");
  group
      ->add_option("--edge-cert-sha256", options->edge_certificate,
                   "Certificate of the HTTP/2 edge: on its connections alone the metadata "
                   "x-lethe-client-cert-sha256 says who calls")
      ->check(Fingerprint())
      ->type_name("HEX");
  group
      ->add_option("--max-connection-minutes", options->max_connection_minutes,
                   "A TLS connection takes new calls for so long, so that a certificate or CA that "
                   "was taken away is gone then; 0 = for ever")
      ->check(CLI::Range(0, 60 * 24 * 365))
      ->capture_default_str();
  group->add_flag("--insecure-plaintext-beyond-loopback", options->plaintext_beyond_loopback,
                  "Listen beyond this machine without TLS: content and tokens can be read on the "
                  "way");
  group->add_flag("--insecure-anonymous-beyond-loopback", options->anonymous_beyond_loopback,
                  "Listen beyond this machine without credentials: whoever reaches the server may "
                  "do everything");
  group->add_flag("--direct-beyond-loopback", options->direct_beyond_loopback,
                  "Listen beyond this machine without the edge of deploy/edge in front: gRPC 1.51 "
                  "falls to one client that resets streams fast");
}

bool IsLoopbackHost(const std::string& host) {
  in_addr address{};
  if (inet_pton(AF_INET, host.c_str(), &address) == 1) {
    return (ntohl(address.s_addr) >> 24) == 127;
  }
  return host == "[::1]" || host == "localhost";
}

absl::Status CheckExposure(const IdentityOptions& options, const std::string& listen_address) {
  LETHE_RETURN_IF_ERROR(CheckTogether(options));
  LETHE_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(listen_address));
  if (IsLoopbackHost(address.host)) return absl::OkStatus();
  const auto refuse = [](const char* why, const char* want, const char* flag) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--listen: beyond 127.0.0.1, [::1] and localhost ", why, ": want ", want, ", or ", flag));
  };
  if (options.tls_certificate_path.empty() && !options.plaintext_beyond_loopback) {
    return refuse("without encryption", "--tls-cert and --tls-key",
                  "--insecure-plaintext-beyond-loopback");
  }
  if (!options.asks_for_credentials() && !options.anonymous_beyond_loopback) {
    return refuse("without credentials", "--tokens or --client-certificates",
                  "--insecure-anonymous-beyond-loopback");
  }
  if (options.edge_certificate.empty() && !options.direct_beyond_loopback) {
    return refuse("without the HTTP/2 edge in front", "--edge-cert-sha256 (deploy/edge)",
                  "--direct-beyond-loopback");
  }
  return absl::OkStatus();
}

}  // namespace lethe
