// ServerMetrics: what has happened since the server started, as counters and histograms.
//
// Equation:  none.
// Shapes:    calls by method (those of proto/lethe/v1) and code; refusals by the option that was met.
// Units:     microseconds in, seconds on the page.
// Requires:  `method` is one of the API's.
// Rejects:   none.
// Effects:   none: nothing is decided by a metric.
// Numerics:  integers.
// Threads:   safe.
#ifndef LETHE_SERVER_METRICS_SERVER_METRICS_H_
#define LETHE_SERVER_METRICS_SERVER_METRICS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"

#include "kernels/base/mutex.h"
#include "server/metrics/latency_histogram.h"
#include "server/metrics/metrics_page.h"

namespace lethe {

class ServerMetrics {
 public:
  using Count = std::atomic<int64_t>;

  // A call that has ended. An error that carries the metadata "limit" (server/limits) is counted by it too.
  void CountCall(const std::string& method, const absl::Status& status, int64_t duration_us);
  // From a stream's arrival until it runs.
  void CountWait(int64_t duration_us);

  Count num_input_tokens{0};      // of prompts and appended inputs
  Count num_generated_tokens{0};  // that were sent
  Count num_input_vectors{0};
  Count num_forgets{0};           // that changed a session
  Count num_forgotten_inputs{0};  // derived ones included

  void WriteTo(MetricsPage* page) const;

 private:
  mutable Mutex mutex_;
  std::map<std::pair<std::string, absl::StatusCode>, LatencyHistogram> calls_
      ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> refused_ ABSL_GUARDED_BY(mutex_);
  LatencyHistogram waits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lethe

#endif  // LETHE_SERVER_METRICS_SERVER_METRICS_H_
