#include "audit/witness/http.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/base/status_macros.h"

namespace lethe::audit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kHeaderBytesMax = size_t{16} << 10;
constexpr double kServeTimeoutS = 5;

// A connection with a time by which everything must be done.
class Connection {
 public:
  Connection(int socket, double timeout_s)
      : socket_(socket),
        deadline_(Clock::now() + std::chrono::microseconds(static_cast<int64_t>(timeout_s * 1e6))) {
  }
  ~Connection() {
    if (socket_ >= 0) close(socket_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int socket() const { return socket_; }

  bool WaitFor(short events) const {
    while (true) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      if (left <= 0) return false;
      pollfd poll_fd{socket_, events, 0};
      const int ready = poll(&poll_fd, 1, static_cast<int>(left));
      // A signal that has this thread wipe its stack, for one (server/wiping).
      if (ready < 0 && errno == EINTR) continue;
      return ready == 1;
    }
  }

  bool Send(absl::string_view bytes) const {
    while (!bytes.empty()) {
      if (!WaitFor(POLLOUT)) return false;
      const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // Appends what comes; false at the end, on an error, when time is up.
  bool Receive(std::string* bytes) const {
    char buffer[4096];
    while (true) {
      if (!WaitFor(POLLIN)) return false;
      const ssize_t got = recv(socket_, buffer, sizeof buffer, MSG_DONTWAIT);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0) return false;
      bytes->append(buffer, static_cast<size_t>(got));
      return true;
    }
  }

 private:
  const int socket_;
  const Clock::time_point deadline_;
};

struct Message {
  std::string first_line;
  std::string content_type;
  std::optional<size_t> content_length;
  std::string body;
};

// The header's lines into `message`; false when it is none of ours.
bool ParseHeader(absl::string_view header, Message* message) {
  const std::vector<absl::string_view> lines = absl::StrSplit(header, "\r\n");
  message->first_line = std::string(lines[0]);
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
    const std::string name = absl::AsciiStrToLower(field.first);
    const absl::string_view value = absl::StripAsciiWhitespace(field.second);
    if (name == "transfer-encoding") return false;  // not in HTTP/1.0
    if (name == "content-type") message->content_type = std::string(value);
    if (name == "content-length") {
      uint64_t length = 0;
      if (message->content_length.has_value() || !absl::SimpleAtoi(value, &length)) return false;
      message->content_length = length;
    }
  }
  return true;
}

enum class Received { kWhole, kMalformed, kTooLong };

enum class Lengthless { kEndsWithConnection, kIsMalformed, kHasNoBody };

// What a message without a content-length is: an answer's body ends with the connection, a GET has none.
Received ReceiveMessage(const Connection& connection,
                        const std::function<Lengthless(const Message&)>& lengthless,
                        Message* message) {
  std::string bytes;
  size_t split = std::string::npos;
  while ((split = bytes.find("\r\n\r\n")) == std::string::npos) {
    if (bytes.size() > kHeaderBytesMax) return Received::kTooLong;
    if (!connection.Receive(&bytes)) return Received::kMalformed;
  }
  if (!ParseHeader(absl::string_view(bytes).substr(0, split), message)) return Received::kMalformed;
  if (!message->content_length.has_value()) {
    const Lengthless what = lengthless(*message);
    if (what == Lengthless::kIsMalformed) return Received::kMalformed;
    if (what == Lengthless::kHasNoBody) message->content_length = 0;
  }
  message->body = bytes.substr(split + 4);
  while (true) {
    const size_t length = message->content_length.value_or(kHttpBodyBytesMax + 1);
    if (message->body.size() > kHttpBodyBytesMax) return Received::kTooLong;
    if (message->content_length.has_value() && length > kHttpBodyBytesMax)
      return Received::kTooLong;
    if (message->content_length.has_value() && message->body.size() >= length) {
      message->body.resize(length);
      return Received::kWhole;
    }
    if (!connection.Receive(&message->body)) {
      return message->content_length.has_value() ? Received::kMalformed : Received::kWhole;
    }
  }
}

Received ReceiveRequest(const Connection& connection, Message* message) {
  const auto lengthless = [](const Message& request) {
    return absl::StartsWith(request.first_line, "GET ") ? Lengthless::kHasNoBody
                                                        : Lengthless::kIsMalformed;
  };
  return ReceiveMessage(connection, lengthless, message);
}

bool ToAddress(const std::string& host, int port, sockaddr_in* address) {
  *address = {};
  address->sin_family = AF_INET;
  address->sin_port = htons(static_cast<uint16_t>(port));
  const std::string numeric = host == "localhost" ? "127.0.0.1" : host;
  return inet_pton(AF_INET, numeric.c_str(), &address->sin_addr) == 1;
}

int NewSocket() { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

absl::Status Connect(const HttpUrl& url, const Connection& connection) {
  sockaddr_in address;
  if (!ToAddress(url.host, url.port, &address)) return absl::InvalidArgumentError("url: host");
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  int error = 0;
  socklen_t size = sizeof error;
  if (connection.socket() < 0 ||
      (connect(connection.socket(), generic, sizeof address) != 0 && errno != EINPROGRESS) ||
      !connection.WaitFor(POLLOUT) ||
      getsockopt(connection.socket(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
    return absl::UnavailableError("no connection");
  }
  return absl::OkStatus();
}

const char* Reason(int status) { return status == 200 ? "OK" : "Refused"; }

void Answer(const Connection& connection, const HttpAnswer& answer) {
  connection.Send(absl::StrCat("HTTP/1.0 ", answer.status, " ", Reason(answer.status),
                               "\r\nContent-Type: ", answer.content_type, "\r\nContent-Length: ",
                               answer.body.size(), "\r\nConnection: close\r\n\r\n", answer.body));
}

}  // namespace

absl::StatusOr<HttpUrl> ParseHttpUrl(absl::string_view url) {
  constexpr absl::string_view kScheme = "http://";
  const absl::Status malformed =
      absl::InvalidArgumentError("url: want http://IPV4:PORT or http://localhost:PORT, and a path");
  if (!absl::StartsWith(url, kScheme)) return malformed;
  url.remove_prefix(kScheme.size());
  const size_t slash = std::min(url.find('/'), url.size());
  const std::pair<std::string, std::string> authority =
      absl::StrSplit(url.substr(0, slash), absl::MaxSplits(':', 1));
  HttpUrl parsed;
  parsed.host = authority.first;
  parsed.path = std::string(url.substr(slash));
  if (absl::EndsWith(parsed.path, "/")) parsed.path.pop_back();
  sockaddr_in address;
  const bool is_plain = std::all_of(parsed.path.begin(), parsed.path.end(),
                                    [](char c) { return c > ' ' && c <= '~'; });
  if (!absl::SimpleAtoi(authority.second, &parsed.port) || parsed.port < 1 || parsed.port > 65535 ||
      !is_plain || !ToAddress(parsed.host, parsed.port, &address)) {
    return malformed;
  }
  return parsed;
}

absl::Status HttpConnect(const HttpUrl& url, double timeout_s) {
  return Connect(url, Connection(NewSocket(), timeout_s));
}

absl::StatusOr<HttpAnswer> HttpPost(const HttpUrl& url, absl::string_view body, double timeout_s) {
  const Connection connection(NewSocket(), timeout_s);
  LETHE_RETURN_IF_ERROR(Connect(url, connection));
  Message message;
  const auto ends_with_connection = [](const Message& /*answer*/) {
    return Lengthless::kEndsWithConnection;
  };
  if (!connection.Send(absl::StrCat("POST ", url.path, " HTTP/1.0\r\nHost: ", url.host, ":",
                                    url.port, "\r\nContent-Type: text/plain\r\nContent-Length: ",
                                    body.size(), "\r\nConnection: close\r\n\r\n", body)) ||
      ReceiveMessage(connection, ends_with_connection, &message) != Received::kWhole) {
    return absl::UnavailableError("no whole answer");
  }
  const std::vector<absl::string_view> words = absl::StrSplit(message.first_line, ' ');
  HttpAnswer answer{0, message.content_type, std::move(message.body)};
  if (words.size() < 2 || !absl::StartsWith(words[0], "HTTP/1.") || words[1].size() != 3 ||
      !absl::SimpleAtoi(words[1], &answer.status)) {
    return absl::UnavailableError("the answer is no HTTP");
  }
  return answer;
}

absl::StatusOr<HttpListener> HttpListener::Listen(const std::string& host, int port) {
  sockaddr_in address;
  if (!ToAddress(host, port, &address)) {
    return absl::InvalidArgumentError("listen: want IPV4:PORT or localhost:PORT");
  }
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const int on = 1;
  if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(listener, generic, sizeof address) != 0 || listen(listener, 16) != 0 ||
      getsockname(listener, generic, &size) != 0) {
    if (listener >= 0) close(listener);
    return absl::UnavailableError(absl::StrCat("cannot listen on ", host, ":", port));
  }
  return HttpListener(listener, ntohs(address.sin_port));
}

HttpListener::~HttpListener() {
  if (socket_ >= 0) close(socket_);
}

void HttpListener::Shutdown() const { shutdown(socket_, SHUT_RDWR); }

void HttpListener::Serve(const Handler& handle) const { ServeMethod("POST", handle); }

void HttpListener::ServeReads(
    const std::function<HttpAnswer(const std::string& path)>& handle) const {
  ServeMethod("GET",
              [&](const std::string& path, const std::string& /*body*/) { return handle(path); });
}

void HttpListener::ServeMethod(const std::string& method, const Handler& handle) const {
  while (true) {
    const int accepted = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (accepted < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (accepted < 0) return;
    const Connection connection(accepted, kServeTimeoutS);
    Message message;
    const Received received = ReceiveRequest(connection, &message);
    const std::vector<std::string> words = absl::StrSplit(message.first_line, ' ');
    if (received == Received::kTooLong) {
      Answer(connection, {413, "text/plain", "too long\n"});
    } else if (received == Received::kMalformed || words.size() != 3) {
      Answer(connection, {400, "text/plain", "no request\n"});
    } else if (words[0] != method) {
      Answer(connection, {405, "text/plain", absl::StrCat("want ", method, "\n")});
    } else {
      Answer(connection, handle(words[1], message.body));
    }
  }
}

}  // namespace lethe::audit
