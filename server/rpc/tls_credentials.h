// TlsCredentials: TLS from files that are read again at every handshake, so that a renewed certificate or another client CA
// needs no restart.
//
// Equation:  none.
// Shapes:    PEM files: the server's certificate with its chain, its private key, and the CA whose clients are let in.
// Units:     none.
// Requires:  the object outlives the server that listens with its credentials.
// Rejects:   Open: INVALID_ARGUMENT naming the flag: a file that cannot be read, a key that is not the certificate's.
// Effects:   files that do not fit together (a certificate is in place and its key not yet) are reported once in the log, and
//            handshakes go on with what was read before. Connections that stand are left: RpcOptions::max_connection_seconds
//            ends them.
// Numerics:  TLS 1.2 or 1.3 (gRPC's own bounds, which the tests try).
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_TLS_CREDENTIALS_H_
#define LETHE_SERVER_RPC_TLS_CREDENTIALS_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>

#include "kernels/base/mutex.h"

namespace lethe {

struct TlsFiles {
  std::string certificate_path;
  std::string key_path;
  std::string client_ca_path;              // empty: clients show no certificate
  bool require_client_certificate = true;  // else a client may come without one
};

class TlsCredentials {
 public:
  static absl::StatusOr<std::unique_ptr<TlsCredentials>> Open(const TlsFiles& files);
  ~TlsCredentials();
  TlsCredentials(const TlsCredentials&) = delete;
  TlsCredentials& operator=(const TlsCredentials&) = delete;

  std::shared_ptr<grpc::ServerCredentials> credentials();

 private:
  struct Texts {
    std::string certificate;
    std::string key;
    std::string client_ca;
  };
  explicit TlsCredentials(const TlsFiles& files) : files_(files) {}
  absl::StatusOr<Texts> Read() const;
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config);
  grpc_ssl_certificate_config_reload_status FetchNew(grpc_ssl_server_certificate_config** config);

  const TlsFiles files_;
  Mutex mutex_;
  bool is_first_ ABSL_GUARDED_BY(mutex_) = true;
  Texts texts_ ABSL_GUARDED_BY(mutex_);           // in use
  std::string reported_ ABSL_GUARDED_BY(mutex_);  // what the log says of the present files
};

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_TLS_CREDENTIALS_H_
