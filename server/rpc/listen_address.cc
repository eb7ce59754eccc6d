#include "server/rpc/listen_address.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

namespace lethe {
namespace {

bool IsHost(const std::string& host) {
  if (host.empty()) return false;
  // A colon in a host is an IPv6 address's, which stands in brackets.
  if (host.find(':') != std::string::npos) return host.front() == '[' && host.back() == ']';
  return std::none_of(host.begin(), host.end(), [](char c) {
    return c == '/' || c == '[' || c == ']' || !absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
}

bool IsDigits(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

}  // namespace

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  ListenAddress address;
  if (colon != std::string::npos) {
    address.host = text.substr(0, colon);
    const std::string port = text.substr(colon + 1);
    if (IsHost(address.host) && IsDigits(port) && absl::SimpleAtoi(port, &address.port) &&
        address.port <= 65535) {
      return address;
    }
  }
  return absl::InvalidArgumentError(
      "want HOST:PORT with a port of 0 to 65535, like 127.0.0.1:7070 or [::1]:7070");
}

}  // namespace lethe
