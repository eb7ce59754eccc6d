// RpcServer: the listening gRPC server with all services, health and, where it is wanted, reflection.
//
// Equation:  none.
// Shapes:    none.
// Units:     seconds, bytes.
// Requires:  core outlives the server.
// Rejects:   Start: INVALID_ARGUMENT for an address that is not HOST:PORT and for TLS files that cannot be used; UNAVAILABLE when the
//            address cannot be listened on (in use, not ours); NOT_FOUND without the library of reflection. Calls: UNIMPLEMENTED
//            when the request is compressed.
// Effects:   Start serves until Shutdown or destruction. A client that answers no ping for keepalive_timeout_seconds is
//            gone, and its calls are cancelled; clients may ping every kClientPingSeconds. Reflection, once on, is on for
//            all servers of the process. Shutdown: health says NOT_SERVING, no call is accepted any more, streams that
//            wait get UNAVAILABLE, running calls may go on for drain_seconds, then streams end with
//            FinishReason SHUTDOWN and what still runs is cancelled; who only watches health or a job does not hold the end up.
// Numerics:  none.
// Threads:   Start and Shutdown: one thread.
#ifndef LETHE_SERVER_RPC_RPC_SERVER_H_
#define LETHE_SERVER_RPC_RPC_SERVER_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

#include "server/rpc/server_core.h"
#include "server/rpc/tls_credentials.h"

namespace lethe {

struct RpcOptions {
  std::string listen_address;  // "127.0.0.1:7070"; port 0 = any free port
  int max_message_bytes = 8 << 20;
  std::optional<TlsFiles> tls = std::nullopt;  // absent: plain text
  int max_connection_seconds =
      0;  // a connection takes new calls for so long, running ones go on; 0 = for ever
  bool reflection = false;
  int keepalive_seconds = 60;  // without a word of the client, before it is asked for one
  int keepalive_timeout_seconds = 20;
};

// The least time between two pings of a client.
inline constexpr int kClientPingSeconds = 10;

class RpcServer {
 public:
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(ServerCore* core,
                                                          const RpcOptions& options);
  ~RpcServer();

  // "127.0.0.1:43211": with the port that was taken.
  const std::string& address() const { return address_; }
  // Blocks until every call has ended. No effect the second time.
  void Shutdown(int drain_seconds);

 private:
  struct Impl;
  RpcServer();
  ServerCore* core_ = nullptr;
  std::string address_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_RPC_SERVER_H_
