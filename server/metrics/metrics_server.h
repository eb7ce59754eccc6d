// MetricsServer: GET /metrics, /livez and /readyz on a port of their own, plain HTTP/1.0.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  `page` may be called from the server's thread at any time until SetPage or the destructor returns.
// Rejects:   Start: INVALID_ARGUMENT for an address that is not IPV4:PORT or localhost:PORT; UNAVAILABLE when it cannot be
//            listened on. Requests: 404 for other paths, 405 for other methods, 503 from /readyz while not ready.
// Effects:   /metrics is the page with the gauge lethe_ready before it; /livez says that the process runs.
// Numerics:  none.
// Threads:   safe. One thread serves, one connection after the other, 5 seconds each at most.
#ifndef LETHE_SERVER_METRICS_METRICS_SERVER_H_
#define LETHE_SERVER_METRICS_METRICS_SERVER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"

#include "kernels/base/mutex.h"

namespace lethe {

class MetricsServer {
 public:
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // "127.0.0.1:9464": with the port that was taken.
  const std::string& address() const { return address_; }
  void SetReady(bool ready) { ready_ = ready; }
  // What /metrics shows beside lethe_ready; none at first.
  void SetPage(std::function<std::string()> page);

 private:
  struct Listener;
  explicit MetricsServer(std::unique_ptr<Listener> listener);

  std::string address_;
  std::atomic<bool> ready_{false};
  Mutex mutex_;
  std::function<std::string()> page_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<Listener> listener_;
  std::thread thread_;
};

// INVALID_ARGUMENT unless `address` has the form that Start wants.
absl::Status CheckMetricsAddress(const std::string& address);

}  // namespace lethe

#endif  // LETHE_SERVER_METRICS_METRICS_SERVER_H_
