// LatencyHistogram: how long things took, counted in buckets.
//
// Equation:  bucket i counts the durations of at most kBoundsUs[i]; on the page they are sums up to and including it.
// Shapes:    one count for each of kBoundsUs and one behind the last.
// Units:     microseconds in, seconds on the page.
// Requires:  none.
// Rejects:   none.
// Effects:   none.
// Numerics:  integers.
// Threads:   compatible.
#ifndef LETHE_SERVER_METRICS_LATENCY_HISTOGRAM_H_
#define LETHE_SERVER_METRICS_LATENCY_HISTOGRAM_H_

#include <array>
#include <cstdint>

#include "server/metrics/metrics_page.h"

namespace lethe {

class LatencyHistogram {
 public:
  // From a page of a session's sizes to a long answer.
  static constexpr std::array<int64_t, 9> kBoundsUs = {
      1'000, 4'000, 16'000, 64'000, 250'000, 1'000'000, 4'000'000, 16'000'000, 64'000'000};

  void Add(int64_t duration_us);
  // The samples of one set of labels.
  void WriteTo(const MetricLabels& labels, MetricsPage* page) const;
  int64_t count() const { return count_; }

 private:
  std::array<int64_t, kBoundsUs.size() + 1> buckets_{};
  int64_t count_ = 0;
  int64_t sum_us_ = 0;
};

}  // namespace lethe

#endif  // LETHE_SERVER_METRICS_LATENCY_HISTOGRAM_H_
