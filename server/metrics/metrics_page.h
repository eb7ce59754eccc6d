// MetricsPage: a page of metrics in Prometheus' text format, version 0.0.4.
//
// Equation:  none.
// Shapes:    a family: its HELP and TYPE lines, then its samples.
// Units:     Prometheus' base units: seconds, bytes.
// Requires:  names of [a-z0-9_], each family once, samples of a family together. Label values come from sets that are fixed
//            when the server starts: never content, never what a client sends.
// Rejects:   none.
// Effects:   none.
// Numerics:  doubles as the shortest text that reads back the same.
// Threads:   compatible.
#ifndef LETHE_SERVER_METRICS_METRICS_PAGE_H_
#define LETHE_SERVER_METRICS_METRICS_PAGE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace lethe {

using MetricLabels = std::vector<std::pair<absl::string_view, absl::string_view>>;

class MetricsPage {
 public:
  void Family(absl::string_view name, absl::string_view type, absl::string_view help);
  // Of the last family; `suffix` as "_bucket" of a histogram.
  void Sample(const MetricLabels& labels, double value, absl::string_view suffix = "");
  // A family of one sample without labels.
  void Counter(absl::string_view name, absl::string_view help, int64_t value);
  void Gauge(absl::string_view name, absl::string_view help, double value);

  const std::string& text() const { return text_; }

 private:
  std::string family_;
  std::string text_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_METRICS_METRICS_PAGE_H_
