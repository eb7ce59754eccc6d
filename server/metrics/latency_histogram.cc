#include "server/metrics/latency_histogram.h"

#include <algorithm>
#include <string>

#include "kernels/base/number_text.h"

namespace lethe {

void LatencyHistogram::Add(int64_t duration_us) {
  const auto bound = std::lower_bound(kBoundsUs.begin(), kBoundsUs.end(), duration_us);
  ++buckets_[static_cast<size_t>(bound - kBoundsUs.begin())];
  ++count_;
  sum_us_ += duration_us;
}

void LatencyHistogram::WriteTo(const MetricLabels& labels, MetricsPage* page) const {
  int64_t count = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    count += buckets_[i];
    const std::string bound =
        i < kBoundsUs.size() ? NumberText(static_cast<double>(kBoundsUs[i]) / 1e6) : "+Inf";
    MetricLabels with_bound = labels;
    with_bound.emplace_back("le", bound);
    page->Sample(with_bound, static_cast<double>(count), "_bucket");
  }
  page->Sample(labels, static_cast<double>(sum_us_) / 1e6, "_sum");
  page->Sample(labels, static_cast<double>(count_), "_count");
}

}  // namespace lethe
