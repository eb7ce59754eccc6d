// HttpGet: what a plain HTTP server at "127.0.0.1:PORT" answers to a request, header and body; empty without an answer.
//
// Threads: safe.
#ifndef LETHE_TESTS_TESTING_HTTP_GET_H_
#define LETHE_TESTS_TESTING_HTTP_GET_H_

#include <cstdint>
#include <string>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lethe::testing {

inline std::string HttpExchange(const std::string& address, const std::string& request) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string answer;
  if (connect(connection, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 &&
      send(connection, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size())) {
    char buffer[4096];
    for (ssize_t got; (got = recv(connection, buffer, sizeof buffer, 0)) > 0;) {
      answer.append(buffer, static_cast<size_t>(got));
    }
  }
  close(connection);
  return answer;
}

inline std::string HttpGet(const std::string& address, const std::string& path) {
  return HttpExchange(address, "GET " + path + " HTTP/1.1\r\nHost: test\r\n\r\n");
}

}  // namespace lethe::testing

#endif  // LETHE_TESTS_TESTING_HTTP_GET_H_
