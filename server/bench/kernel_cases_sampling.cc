// Draws of the next token.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/sampling/sampling_batch.h"
#include "server/bench/kernel_cases_local.h"

namespace lethe::bench {
namespace {

// A draw for each of B sessions.
class SamplingCase : public KernelCase {
 public:
  SamplingCase(std::string way, int64_t num_rows, int64_t vocab, const SamplingRow& row)
      : way_(std::move(way)), num_rows_(num_rows), vocab_(vocab), row_(row) {}
  std::string kernel() const override { return "sampling, " + way_; }
  std::string shape() const override { return absl::StrCat("B", num_rows_, " vocab ", vocab_); }
  double tokens() const override { return static_cast<double>(num_rows_); }
  double state_bytes() const override { return 0.0; }

  absl::Status Prepare(Queue* queue) override {
    std::vector<float> logits = RandomValues(num_rows_ * vocab_, 1);
    for (float& logit : logits) logit *= 8.0f;
    std::vector<SamplingRow> rows;
    for (int64_t m = 0; m < num_rows_; ++m) {
      rows.push_back(row_);
      rows.back().seed = static_cast<uint64_t>(m);
    }
    LETHE_ASSIGN_OR_RETURN(logits_, DeviceArray<float>::From(queue, logits));
    LETHE_ASSIGN_OR_RETURN(rows_, DeviceArray<SamplingRow>::From(queue, rows));
    LETHE_ASSIGN_OR_RETURN(workspace_, DeviceArray<std::byte>::Zeros(
                                           queue, SamplingWorkspaceBytes(num_rows_, vocab_)));
    LETHE_ASSIGN_OR_RETURN(sampled_, DeviceArray<SampledRow>::Zeros(queue, rows.size()));
    return absl::OkStatus();
  }
  absl::Status Run(Queue* queue) override {
    return SampleBatch(queue, logits_.data(), num_rows_, vocab_, rows_.data(), nullptr,
                       workspace_.data(), sampled_.data(), nullptr);
  }

 private:
  std::string way_;
  int64_t num_rows_;
  int64_t vocab_;
  SamplingRow row_;
  DeviceArray<float> logits_;
  DeviceArray<SamplingRow> rows_;
  DeviceArray<std::byte> workspace_;
  DeviceArray<SampledRow> sampled_;
};

}  // namespace

void AddSamplingCases(KernelCases* cases) {
  SamplingRow greedy;
  SamplingRow plain;
  plain.temperature = 0.8;
  SamplingRow top_k = plain;
  top_k.top_k = 40;
  SamplingRow top_p = plain;
  top_p.top_p = 0.9;
  for (const int64_t vocab : {256, 50280, 131072}) {
    cases->push_back(std::make_unique<SamplingCase>("greedy", 256, vocab, greedy));
    cases->push_back(std::make_unique<SamplingCase>("temperature", 256, vocab, plain));
    cases->push_back(std::make_unique<SamplingCase>("top_k", 256, vocab, top_k));
    cases->push_back(std::make_unique<SamplingCase>("top_p", 256, vocab, top_p));
  }
}

}  // namespace lethe::bench
