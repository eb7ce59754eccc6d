#include <algorithm>
#include <cstdio>
#include <memory>

#include "kernels/base/status_macros.h"
#include "server/bench/benches.h"
#include "server/bench/report.h"
#include "server/model/model.h"
#include "server/session/session.h"

namespace lethe::bench {
namespace {

constexpr int64_t kDecodeTokens = 128;

void Print(const char* what, int64_t size, const Samples& rate, bool json) {
  if (json) {
    std::printf(
        "{\"bench\":\"model\",\"what\":\"%s\",\"history\":%lld,\"median_tokens_per_s\":%.1f,"
        "\"min_tokens_per_s\":%.1f,\"max_tokens_per_s\":%.1f,\"runs\":%zu}\n",
        what, static_cast<long long>(size), rate.Median(), rate.Min(), rate.Max(),
        rate.values.size());
  } else {
    std::printf("%-8s %8lld %12.0f %12.0f %12.0f\n", what, static_cast<long long>(size),
                rate.Median(), rate.Min(), rate.Max());
  }
}

}  // namespace

absl::Status DecodeGreedily(Session* session, int64_t num_tokens) {
  for (int64_t i = 0; i < num_tokens; ++i) {
    const absl::Span<const float> logits = session->logits();
    const auto best = std::max_element(logits.begin(), logits.end());
    LETHE_RETURN_IF_ERROR(
        session->AppendGenerated(static_cast<int32_t>(best - logits.begin())).status());
  }
  return absl::OkStatus();
}

absl::Status RunModelBench(const BenchOptions& options) {
  LETHE_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, Model::Load(options.model_directory));
  if (!options.json) {
    std::printf("machine: %s, one thread\nmodel: %s, width %lld, %d runs each\n\n",
                MachineName().c_str(), model->config().name.c_str(),
                static_cast<long long>(model->config().width), options.runs);
    std::printf("%-8s %8s %12s %12s %12s   tokens/s\n", "what", "history", "median", "least",
                "greatest");
  }
  for (const int64_t size : options.sizes) {
    Samples prefill;
    Samples decode;
    for (int run = 0; run < options.runs; ++run) {
      LETHE_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                             Session::Create(model, SessionOptions()));
      const std::vector<int32_t> text = SampleText(size, static_cast<uint64_t>(run) + 1);
      double start = Now();
      LETHE_RETURN_IF_ERROR(session->Append(text, "", InputKind::kAppended).status());
      static_cast<void>(session->logits());
      prefill.values.push_back(static_cast<double>(size) / (Now() - start));
      start = Now();
      LETHE_RETURN_IF_ERROR(DecodeGreedily(session.get(), kDecodeTokens));
      decode.values.push_back(static_cast<double>(kDecodeTokens) / (Now() - start));
    }
    Print("prefill", size, prefill, options.json);
    Print("decode", size, decode, options.json);
  }
  return absl::OkStatus();
}

}  // namespace lethe::bench
