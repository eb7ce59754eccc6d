// FrozenRelay: a TCP relay on 127.0.0.1 that can stop passing bytes on while its connections stay open, as when a cable is cut.
//
// Threads: one thread relays; Freeze is safe.
#ifndef LETHE_TESTS_INTEGRATION_FROZEN_RELAY_H_
#define LETHE_TESTS_INTEGRATION_FROZEN_RELAY_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lethe::testing {

class FrozenRelay {
 public:
  // To "127.0.0.1:PORT".
  explicit FrozenRelay(const std::string& target)
      : target_(Loopback(std::stoi(target.substr(target.rfind(':') + 1)))),
        listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in own = Loopback(0);
    socklen_t size = sizeof own;
    EXPECT_EQ(bind(listener_, Generic(&own), size), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    EXPECT_EQ(getsockname(listener_, Generic(&own), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(own.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~FrozenRelay() {
    ending_ = true;
    thread_.join();
    for (const pollfd& end : ends_) close(end.fd);
    close(listener_);
  }
  FrozenRelay(const FrozenRelay&) = delete;
  FrozenRelay& operator=(const FrozenRelay&) = delete;

  const std::string& address() const { return address_; }
  void Freeze() { frozen_ = true; }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static sockaddr* Generic(sockaddr_in* address) { return reinterpret_cast<sockaddr*>(address); }

  void Run() {
    while (!ending_) {
      if (frozen_) {
        poll(nullptr, 0, 10);
        continue;
      }
      std::vector<pollfd> watched = ends_;
      watched.push_back({listener_, POLLIN, 0});
      if (poll(watched.data(), watched.size(), 10) <= 0) continue;
      if (watched.back().revents != 0) Accept();
      // Ends 2 k and 2 k + 1 are of one connection.
      for (size_t i = 0; i + 1 < watched.size(); ++i) {
        if (watched[i].revents != 0) Pass(watched[i].fd, watched[i ^ 1].fd);
      }
    }
  }
  void Accept() {
    const int near = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const int far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(far, Generic(&target_), sizeof target_), 0);
    ends_.push_back({near, POLLIN, 0});
    ends_.push_back({far, POLLIN, 0});
  }
  void Pass(int from, int to) {
    char buffer[16384];
    const ssize_t got = recv(from, buffer, sizeof buffer, MSG_DONTWAIT);
    for (ssize_t sent = 0; sent < got;) {
      const ssize_t more = send(to, buffer + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
      if (more <= 0) break;
      sent += more;
    }
    if (got == 0) shutdown(to, SHUT_WR);
  }

  sockaddr_in target_;
  const int listener_;
  std::string address_;
  std::vector<pollfd> ends_;
  std::atomic<bool> frozen_{false};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace lethe::testing

#endif  // LETHE_TESTS_INTEGRATION_FROZEN_RELAY_H_
