// IdentityOptions, AddIdentityOptions, CheckExposure: the options of lethe-server about who may call it, and from where.
//
// Equation:  none.
// Shapes:    none.
// Units:     minutes.
// Requires:  none.
// Rejects:   CheckExposure: INVALID_ARGUMENT: options that want others beside them, and an address beyond loopback without
//            TLS, without credentials or without the HTTP/2 edge in front, unless the flag that allows just that is given. The
//            message names the flags.
// Effects:   none.
// Numerics:  none.
// Threads:   one thread.
#ifndef LETHE_SERVER_IDENTITY_OPTIONS_H_
#define LETHE_SERVER_IDENTITY_OPTIONS_H_

#include <string>

#include "absl/status/status.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lethe {

struct IdentityOptions {
  std::string tokens_path;
  std::string certificates_path;
  std::string tls_certificate_path;
  std::string tls_key_path;
  std::string client_ca_path;
  std::string edge_certificate;  // 64 hex digits
  int max_connection_minutes = 60;
  bool plaintext_beyond_loopback = false;
  bool anonymous_beyond_loopback = false;
  bool direct_beyond_loopback = false;

  bool asks_for_credentials() const { return !tokens_path.empty() || !certificates_path.empty(); }
  // A token is enough where tokens are known, but behind the edge, whose certificate every connection shows.
  bool requires_client_certificate() const {
    return !edge_certificate.empty() || tokens_path.empty();
  }
};

void AddIdentityOptions(CLI::App* app, IdentityOptions* options);

// 127.0.0.0/8, [::1] or localhost; of a host as ParseListenAddress gives it.
bool IsLoopbackHost(const std::string& host);

// `listen_address` is one that ParseListenAddress takes.
absl::Status CheckExposure(const IdentityOptions& options, const std::string& listen_address);

}  // namespace lethe

#endif  // LETHE_SERVER_IDENTITY_OPTIONS_H_
