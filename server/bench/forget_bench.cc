#include <cstdio>
#include <memory>

#include "kernels/base/status_macros.h"
#include "server/bench/benches.h"
#include "server/bench/report.h"
#include "server/model/model.h"
#include "server/session/session.h"

namespace lethe::bench {
namespace {

struct Row {
  int64_t history = 0;
  int64_t distance = 0;  // tokens from the removed one to the head, T - r
  int64_t tokens_evaluated = 0;
  Samples forget_ms;
};

void Print(const Row& row, double ms_per_token, bool json) {
  const double budget =
      2.2 * static_cast<double>(row.distance) + 128;  // the promise, in evaluated tokens
  const double spent = row.forget_ms.Median() / ms_per_token;
  if (json) {
    std::printf(
        "{\"bench\":\"forget\",\"history\":%lld,\"distance\":%lld,\"tokens_evaluated\":%lld,"
        "\"median_ms\":%.3f,\"min_ms\":%.3f,\"max_ms\":%.3f,\"in_tokens\":%.1f,"
        "\"budget_tokens\":%.1f}\n",
        static_cast<long long>(row.history), static_cast<long long>(row.distance),
        static_cast<long long>(row.tokens_evaluated), row.forget_ms.Median(), row.forget_ms.Min(),
        row.forget_ms.Max(), spent, budget);
  } else {
    std::printf("%8lld %9lld %10lld %10.2f %10.2f %10.2f %10.0f %10.0f\n",
                static_cast<long long>(row.history), static_cast<long long>(row.distance),
                static_cast<long long>(row.tokens_evaluated), row.forget_ms.Median(),
                row.forget_ms.Min(), row.forget_ms.Max(), spent, budget);
  }
}

absl::Status RunSize(const std::shared_ptr<const Model>& model, int64_t size,
                     const BenchOptions& options) {
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                         Session::Create(model, SessionOptions()));
  const double start = Now();
  LETHE_RETURN_IF_ERROR(session->Append(SampleText(size, 1), "", InputKind::kAppended).status());
  const double ms_per_token = (Now() - start) * 1e3 / static_cast<double>(size);
  for (const int64_t distance : {int64_t{1}, int64_t{64}, int64_t{256}, size / 4, size / 2, size}) {
    if (distance > size) continue;
    Row row{size, distance, 0, {}};
    for (int run = 0; run < options.runs; ++run) {
      // A fork keeps the history at `size` for every run; forking is not timed.
      const std::unique_ptr<Session> fork = session->Fork();
      const uint64_t token_id = fork->inputs().at(fork->num_tokens() - distance).token_id;
      const double begin = Now();
      LETHE_ASSIGN_OR_RETURN(
          const ForgetResult result,
          fork->Forget(ForgetSelector::Ids({token_id}), DerivedPolicy::kForgetDerived));
      row.forget_ms.values.push_back((Now() - begin) * 1e3);
      row.tokens_evaluated = result.tokens_evaluated;
    }
    Print(row, ms_per_token, options.json);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunForgetBench(const BenchOptions& options) {
  LETHE_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, Model::Load(options.model_directory));
  if (!options.json) {
    std::printf(
        "machine: %s, one thread\nmodel: %s, %d runs each; digests before and after included\n\n",
        MachineName().c_str(), model->config().name.c_str(), options.runs);
    std::printf("%8s %9s %10s %10s %10s %10s %10s %10s\n", "history", "distance", "evaluated",
                "median ms", "least", "greatest", "in tokens", "budget");
  }
  for (const int64_t size : options.sizes) {
    LETHE_RETURN_IF_ERROR(RunSize(model, size, options));
  }
  return absl::OkStatus();
}

}  // namespace lethe::bench
