#include "tests/soak/soak_channel.h"

#include <cstdlib>

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "kernels/base/check.h"

namespace lethe::soak {

void SoakChannel::Connect() {
  stubs_.reset();
  const size_t colon = address_.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(address_.c_str() + colon + 1)));
  LETHE_CHECK(inet_pton(AF_INET, address_.substr(0, colon).c_str(), &address.sin_addr) == 1);
  socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  LETHE_CHECK(socket_ >= 0);
  LETHE_CHECK(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  LETHE_CHECK(fcntl(socket_, F_SETFL, O_NONBLOCK) == 0);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  stubs_ = std::make_unique<testing::Stubs>(
      grpc::CreateCustomInsecureChannelFromFd("lethe", socket_, arguments));
}

void SoakChannel::Drop() {
  const linger reset{1, 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  shutdown(socket_, SHUT_RDWR);
}

}  // namespace lethe::soak
