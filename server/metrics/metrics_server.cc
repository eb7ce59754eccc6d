#include "server/metrics/metrics_server.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "audit/witness/http.h"
#include "kernels/base/status_macros.h"
#include "server/metrics/metrics_page.h"

namespace lethe {
namespace {

// Port 0 too: any free port.
absl::StatusOr<std::pair<std::string, int>> Parse(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  // A host with another colon would be an IPv6 address, which the listener does not know.
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port < 0 || port > 65'535 ||
      !audit::ParseHttpUrl(absl::StrCat("http://", address.substr(0, colon), ":1")).ok()) {
    return absl::InvalidArgumentError("want IPV4:PORT or localhost:PORT, port 0 to 65535");
  }
  return std::make_pair(address.substr(0, colon), port);
}

}  // namespace

struct MetricsServer::Listener {
  audit::HttpListener http;
};

absl::Status CheckMetricsAddress(const std::string& address) { return Parse(address).status(); }

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address) {
  LETHE_ASSIGN_OR_RETURN(const auto parsed, Parse(address));
  absl::StatusOr<audit::HttpListener> http =
      audit::HttpListener::Listen(parsed.first, parsed.second);
  if (!http.ok()) {
    return absl::Status(http.status().code(), absl::StrCat("--metrics: ", http.status().message()));
  }
  std::unique_ptr<MetricsServer> server(
      new MetricsServer(std::make_unique<Listener>(Listener{*std::move(http)})));
  server->address_ = absl::StrCat(parsed.first, ":", server->listener_->http.port());
  return server;
}

MetricsServer::MetricsServer(std::unique_ptr<Listener> listener)
    : listener_(std::move(listener)), thread_([this] {
        listener_->http.ServeReads([this](const std::string& path) -> audit::HttpAnswer {
          if (path == "/livez") return {200, "text/plain", "ok\n"};
          if (path == "/readyz") {
            return ready_ ? audit::HttpAnswer{200, "text/plain", "ready\n"}
                          : audit::HttpAnswer{503, "text/plain", "not ready\n"};
          }
          if (path != "/metrics") {
            return {404, "text/plain", "want /metrics, /livez or /readyz\n"};
          }
          MetricsPage page;
          page.Gauge("lethe_ready", "1 once recovery is done, until the server stops.",
                     ready_ ? 1 : 0);
          MutexLock lock(&mutex_);
          return {200, "text/plain; version=0.0.4", page.text() + (page_ ? page_() : "")};
        });
      }) {}

MetricsServer::~MetricsServer() {
  listener_->http.Shutdown();
  thread_.join();
}

void MetricsServer::SetPage(std::function<std::string()> page) {
  MutexLock lock(&mutex_);
  page_ = std::move(page);
}

}  // namespace lethe
