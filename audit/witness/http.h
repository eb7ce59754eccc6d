// HttpPost, HttpConnect, HttpListener: as much of HTTP/1.0 as add-checkpoint and a page of metrics need: one request a
// connection, on plain TCP.
//
// Equation:  none.
// Shapes:    a body of at most kHttpBodyBytesMax; a header of at most 16 KiB.
// Units:     seconds.
// Requires:  none.
// Rejects:   HttpPost: UNAVAILABLE for everything that is no whole answer within the time: no connection, a header that is no
//            HTTP, a body that is cut or too long. Redirects are answers like others; nothing is followed.
//            HttpConnect: UNAVAILABLE: no connection.
//            Serve, ServeReads answer 400, 405 or 413 to what is no such request, and drop a connection that is slow.
// Effects:   none.
// Numerics:  none.
// Threads:   HttpPost, HttpConnect: safe. Serve, ServeReads: run in the caller's thread, one connection at a time, until the
//            listener closes.
#ifndef LETHE_AUDIT_WITNESS_HTTP_H_
#define LETHE_AUDIT_WITNESS_HTTP_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lethe::audit {

inline constexpr size_t kHttpBodyBytesMax = size_t{128} << 10;

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain";
  std::string body;
};

// "http://HOST:PORT" with an IPv4 address or localhost, and an optional path; the only form of a witness's URL.
struct HttpUrl {
  std::string host;
  int port = 0;
  std::string path;
};
absl::StatusOr<HttpUrl> ParseHttpUrl(absl::string_view url);

// Connects, sends nothing and closes.
absl::Status HttpConnect(const HttpUrl& url, double timeout_s);
absl::StatusOr<HttpAnswer> HttpPost(const HttpUrl& url, absl::string_view body, double timeout_s);

// A listening socket; port 0 takes a free one.
class HttpListener {
 public:
  static absl::StatusOr<HttpListener> Listen(const std::string& host, int port);
  HttpListener(HttpListener&& other) noexcept : socket_(other.socket_), port_(other.port_) {
    other.socket_ = -1;
  }
  ~HttpListener();
  HttpListener(const HttpListener&) = delete;
  HttpListener& operator=(const HttpListener&) = delete;

  int port() const { return port_; }
  // Ends a Serve or ServeReads in another thread.
  void Shutdown() const;
  // Answers every POST.
  void Serve(const std::function<HttpAnswer(const std::string& path, const std::string& body)>&
                 handle) const;
  // Answers every GET.
  void ServeReads(const std::function<HttpAnswer(const std::string& path)>& handle) const;

 private:
  using Handler = std::function<HttpAnswer(const std::string& path, const std::string& body)>;
  void ServeMethod(const std::string& method, const Handler& handle) const;
  HttpListener(int socket, int port) : socket_(socket), port_(port) {}
  int socket_;
  int port_;
};

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_WITNESS_HTTP_H_
