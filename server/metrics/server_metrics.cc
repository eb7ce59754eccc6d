#include "server/metrics/server_metrics.h"

#include "server/error/error_info.h"

namespace lethe {

void ServerMetrics::CountCall(const std::string& method, const absl::Status& status,
                              int64_t duration_us) {
  std::string limit;
  if (!status.ok()) {
    for (const auto& [key, value] : ErrorInfoOf(status).metadata) {
      if (key == "limit") limit = value;
    }
  }
  MutexLock lock(&mutex_);
  calls_[{method, status.code()}].Add(duration_us);
  if (!limit.empty()) ++refused_[limit];
}

void ServerMetrics::CountWait(int64_t duration_us) {
  MutexLock lock(&mutex_);
  waits_.Add(duration_us);
}

void ServerMetrics::WriteTo(MetricsPage* page) const {
  page->Counter("lethe_input_tokens_total", "Tokens of prompts and appended inputs.",
                num_input_tokens);
  page->Counter("lethe_generated_tokens_total", "Tokens drawn and sent.", num_generated_tokens);
  page->Counter("lethe_input_vectors_total", "Vectors appended to vector sessions.",
                num_input_vectors);
  page->Counter("lethe_forgets_total", "Forgets that changed a session, those of jobs left out.",
                num_forgets);
  page->Counter("lethe_forgotten_inputs_total", "Inputs that these Forgets removed.",
                num_forgotten_inputs);
  MutexLock lock(&mutex_);
  page->Family("lethe_rpc_duration_seconds", "histogram", "Calls by method and status code.");
  for (const auto& [key, histogram] : calls_) {
    const std::string code = absl::StatusCodeToString(key.second);
    histogram.WriteTo({{"method", key.first}, {"code", code}}, page);
  }
  page->Family("lethe_limit_refusals_total", "counter", "Calls refused, by the limit they met.");
  for (const auto& [limit, count] : refused_) {
    page->Sample({{"limit", limit}}, static_cast<double>(count));
  }
  page->Family("lethe_queue_wait_seconds", "histogram",
               "Time from a stream's arrival until it runs.");
  waits_.WriteTo({}, page);
}

}  // namespace lethe
