#include "client/doctor/port_checks.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lethe::client {
namespace {

// 0, or why it cannot be bound.
int Bind(const addrinfo& address) {
  const int descriptor =
      socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol);
  if (descriptor < 0) return errno;
  // As a server does: connections of one that has just ended are in nobody's way.
  const int on = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const int error = bind(descriptor, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  close(descriptor);
  return error;
}

}  // namespace

Finding CheckPort(const std::string& address) {
  Finding finding{Verdict::kError, "port", "", ""};
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (absl::string_view name = host;
      absl::ConsumePrefix(&name, "[") && absl::ConsumeSuffix(&name, "]")) {
    host = std::string(name);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &list) != 0) {
    finding.found = absl::StrCat(address, ": the host's name does not resolve here");
    finding.remedy = "name an address of this machine";
    return finding;
  }
  const int error = Bind(*list);
  freeaddrinfo(list);
  switch (error) {
    case 0:
      return {Verdict::kGood, "port", absl::StrCat(address, " is free"), ""};
    case EADDRINUSE:
      finding.found =
          absl::StrCat(address, " is taken by another program, or by a server that speaks TLS");
      finding.remedy = "end it (ss -ltnp says which it is), or give lethe-server another --listen";
      return finding;
    case EACCES:
      finding.found = absl::StrCat(address, " is closed to this user");
      finding.remedy = "take a port from 1024 on, or AmbientCapabilities=CAP_NET_BIND_SERVICE";
      return finding;
    case EADDRNOTAVAIL:
      finding.found = absl::StrCat(address, " is no address of this machine");
      finding.remedy = "name an address of this machine (ip address)";
      return finding;
    default:
      finding.found = absl::StrCat(address, " cannot be bound: ", std::strerror(error));
      finding.remedy = "check the network's set-up";
      return finding;
  }
}

}  // namespace lethe::client
