#include "server/metrics/metrics_page.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "kernels/base/number_text.h"

namespace lethe {
namespace {

std::string Labels(const MetricLabels& labels) {
  if (labels.empty()) return "";
  const auto write = [](std::string* out, const auto& label) {
    absl::StrAppend(
        out, label.first, "=\"",
        absl::StrReplaceAll(label.second, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}), "\"");
  };
  return absl::StrCat("{", absl::StrJoin(labels, ",", write), "}");
}

}  // namespace

void MetricsPage::Family(absl::string_view name, absl::string_view type, absl::string_view help) {
  family_ = std::string(name);
  absl::StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
}

void MetricsPage::Sample(const MetricLabels& labels, double value, absl::string_view suffix) {
  absl::StrAppend(&text_, family_, suffix, Labels(labels), " ", NumberText(value), "\n");
}

void MetricsPage::Counter(absl::string_view name, absl::string_view help, int64_t value) {
  Family(name, "counter", help);
  Sample({}, static_cast<double>(value));
}

void MetricsPage::Gauge(absl::string_view name, absl::string_view help, double value) {
  Family(name, "gauge", help);
  Sample({}, value);
}

}  // namespace lethe
