#include "client/commands/connection.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/commands/files.h"
#include "client/commands/option_checks.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

absl::StatusOr<std::string> ReadNamed(absl::string_view option, const std::string& path) {
  if (path.empty()) return std::string();
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(option, ": ", text.status().message()));
  }
  const std::string stripped(absl::StripAsciiWhitespace(*text));
  if (stripped.empty())
    return absl::InvalidArgumentError(absl::StrCat(option, ": the file is empty"));
  return stripped;
}

}  // namespace

void AddConnectionOptions(CLI::App& app, GlobalOptions& options) {
  app.add_option("--server", options.server, "HOST:PORT of the server")
      ->envname("LETHE_SERVER")
      ->type_name("ADDRESS")
      ->capture_default_str();
  app.add_option("--tls-ca", options.tls_ca_path, "TLS: the CA that the server's certificate is of")
      ->envname("LETHE_TLS_CA")
      ->type_name("FILE");
  app.add_option("--tls-cert", options.tls_certificate_path, "Mutual TLS: your certificate")
      ->envname("LETHE_TLS_CERT")
      ->type_name("FILE");
  app.add_option("--tls-key", options.tls_key_path, "Its private key")
      ->envname("LETHE_TLS_KEY")
      ->type_name("FILE");
  app.add_option("--token-file", options.token_path, "Your bearer token, in a file")
      ->envname("LETHE_TOKEN_FILE")
      ->type_name("FILE");
}

absl::StatusOr<ConnectOptions> ReadConnectOptions(const GlobalOptions& options) {
  LETHE_RETURN_IF_ERROR(CheckAddress("--server (or LETHE_SERVER)", options.server));
  ConnectOptions connect;
  connect.address = options.server;
  connect.timeout_s = options.timeout_s;
  LETHE_ASSIGN_OR_RETURN(connect.tls_ca, ReadNamed("--tls-ca", options.tls_ca_path));
  LETHE_ASSIGN_OR_RETURN(connect.tls_certificate,
                         ReadNamed("--tls-cert", options.tls_certificate_path));
  LETHE_ASSIGN_OR_RETURN(connect.tls_key, ReadNamed("--tls-key", options.tls_key_path));
  LETHE_ASSIGN_OR_RETURN(connect.token, ReadNamed("--token-file", options.token_path));
  return connect;
}

}  // namespace lethe::client
