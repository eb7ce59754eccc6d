// SoakChannel: a client's own connection, which it can drop as a machine does that loses its network.
//
// Rejects:   a server that does not listen: Connect leaves no stubs.
// Effects:   Drop closes the connection under gRPC's feet with a reset: calls that run on it end with UNAVAILABLE.
// Threads:   compatible.
#ifndef LETHE_TESTS_SOAK_SOAK_CHANNEL_H_
#define LETHE_TESTS_SOAK_SOAK_CHANNEL_H_

#include <memory>
#include <string>

#include "tests/integration/server_testing.h"

namespace lethe::soak {

class SoakChannel {
 public:
  // "127.0.0.1:43211".
  explicit SoakChannel(std::string address) : address_(std::move(address)) { Connect(); }
  SoakChannel(const SoakChannel&) = delete;
  SoakChannel& operator=(const SoakChannel&) = delete;

  testing::Stubs& stubs() { return *stubs_; }
  void Drop();
  // After Drop, once the calls on the old connection are gone.
  void Connect();

 private:
  const std::string address_;
  int socket_ = -1;  // gRPC's: it closes it
  std::unique_ptr<testing::Stubs> stubs_;
};

}  // namespace lethe::soak

#endif  // LETHE_TESTS_SOAK_SOAK_CHANNEL_H_
