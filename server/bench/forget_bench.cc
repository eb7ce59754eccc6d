#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/status_macros.h"
#include "server/bench/benches.h"
#include "server/bench/report.h"
#include "server/model/model.h"
#include "server/session/session.h"

namespace lethe::bench {
namespace {

constexpr int64_t kScatteredTokens = 500;
constexpr int kMaxReevaluations = 3;  // they take as long as they say

struct Measurement {
  Samples ms;
  ForgetResult result;  // of the last run
};

// What one Forget costs on both ways. Staged and dropped, so that every run sees the same session.
struct Row {
  std::string what;
  int64_t history = 0;
  int64_t distance = 0;  // tokens from the first removed one to the head, T - r
  int64_t removed = 0;
  Measurement chosen;  // the way that a Forget takes
  Measurement reevaluation;
};

absl::StatusOr<Measurement> Measure(const Session& session, const ForgetSelector& selector,
                                    std::optional<ForgetWay> way, int runs) {
  Measurement measurement;
  for (int run = 0; run < runs; ++run) {
    const double begin = Now();
    {
      LETHE_ASSIGN_OR_RETURN(const std::unique_ptr<StagedForget> staged,
                             session.StageForget(selector, DerivedPolicy::kForgetDerived, {}, way));
      measurement.result = staged->result();
    }
    measurement.ms.values.push_back((Now() - begin) * 1e3);
  }
  return measurement;
}

void PrintHeader() {
  std::printf("%-10s %7s %9s %8s  %-6s %9s %9s %9s  %9s %6s  %8s %8s %8s %8s %7s\n", "what",
              "history", "distance", "removed", "way", "median ms", "least", "greatest", "re-eval",
              "ratio", "local", "replay", "solve", "digest", "tokens");
}

void Print(const Row& row, bool json) {
  const ForgetResult& result = row.chosen.result;
  const bool replay = result.way == ForgetWay::kReplay;
  const double chosen = row.chosen.ms.Median();
  const double reevaluation = row.reevaluation.ms.Median();
  const int64_t tokens = replay ? result.local_tokens : result.tokens_evaluated;
  if (json) {
    std::printf(
        "{\"bench\":\"forget\",\"what\":\"%s\",\"history\":%lld,\"distance\":%lld,"
        "\"removed\":%lld,\"way\":\"%s\",\"median_ms\":%.3f,\"min_ms\":%.3f,\"max_ms\":%.3f,"
        "\"reevaluation_ms\":%.3f,\"evaluate_ms\":%.3f,\"replay_ms\":%.3f,\"solve_ms\":%.3f,"
        "\"digest_ms\":%.3f,\"tokens_evaluated\":%lld}\n",
        row.what.c_str(), static_cast<long long>(row.history), static_cast<long long>(row.distance),
        static_cast<long long>(row.removed), replay ? "replay" : "re-evaluation", chosen,
        row.chosen.ms.Min(), row.chosen.ms.Max(), reevaluation, result.times.evaluate * 1e3,
        result.times.replay * 1e3, result.times.solve * 1e3, result.times.digest * 1e3,
        static_cast<long long>(tokens));
  } else {
    std::printf(
        "%-10s %7lld %9lld %8lld  %-6s %9.1f %9.1f %9.1f  %9.1f %6.2f  %8.1f %8.1f %8.1f %8.1f "
        "%7lld\n",
        row.what.c_str(), static_cast<long long>(row.history), static_cast<long long>(row.distance),
        static_cast<long long>(row.removed), replay ? "replay" : "eval", chosen,
        row.chosen.ms.Min(), row.chosen.ms.Max(), reevaluation, reevaluation / chosen,
        result.times.evaluate * 1e3, result.times.replay * 1e3, result.times.solve * 1e3,
        result.times.digest * 1e3, static_cast<long long>(tokens));
  }
  std::fflush(stdout);
}

void PrintBytes(const Session& session, bool json) {
  const SessionBytes bytes = session.bytes();
  const double tokens = static_cast<double>(session.num_tokens());
  const auto per_token = [&](size_t count) { return static_cast<double>(count) / tokens; };
  if (json) {
    std::printf(
        "{\"bench\":\"forget_bytes\",\"history\":%lld,\"state\":%zu,\"snapshots\":%zu,"
        "\"stored_inputs\":%zu,\"inputs\":%zu}\n",
        static_cast<long long>(session.num_tokens()), bytes.state, bytes.snapshots,
        bytes.stored_inputs, bytes.inputs);
  } else {
    std::printf(
        "%lld tokens hold, bytes a token: state with keys %.0f, snapshots %.0f, stored inputs "
        "%.0f, inputs %.0f\n",
        static_cast<long long>(session.num_tokens()), per_token(bytes.state),
        per_token(bytes.snapshots), per_token(bytes.stored_inputs), per_token(bytes.inputs));
  }
}

absl::Status RunRow(const Session& session, const std::string& what,
                    const std::vector<int64_t>& ranks, const BenchOptions& options) {
  std::vector<uint64_t> ids;
  ids.reserve(ranks.size());
  for (const int64_t rank : ranks) ids.push_back(session.inputs().at(rank).token_id);
  const ForgetSelector selector = ForgetSelector::Ids(ids);
  Row row;
  row.what = what;
  row.history = session.num_tokens();
  row.distance = session.num_tokens() - ranks.front();
  row.removed = static_cast<int64_t>(ranks.size());
  LETHE_ASSIGN_OR_RETURN(row.chosen, Measure(session, selector, std::nullopt, options.runs));
  LETHE_ASSIGN_OR_RETURN(row.reevaluation, Measure(session, selector, ForgetWay::kReevaluation,
                                                   std::min(options.runs, kMaxReevaluations)));
  Print(row, options.json);
  return absl::OkStatus();
}

absl::Status RunSize(const std::shared_ptr<const Model>& model, int64_t size,
                     const BenchOptions& options) {
  SessionOptions session_options;
  session_options.stored_input_bytes = static_cast<size_t>(options.stored_input_mib) << 20;
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create(model, session_options));
  LETHE_RETURN_IF_ERROR(session->Append(SampleText(size, 1), "", InputKind::kAppended).status());
  PrintBytes(*session, options.json);
  for (const int64_t distance :
       {int64_t{1}, int64_t{64}, int64_t{256}, int64_t{1024}, size / 4, size / 2, size}) {
    if (distance > size) continue;
    LETHE_RETURN_IF_ERROR(RunRow(*session, "one token", {size - distance}, options));
  }
  std::vector<int64_t> scattered;
  const int64_t count = std::min(kScatteredTokens, size / 4);
  for (int64_t i = 0; i < count; ++i) scattered.push_back(i * size / count);
  LETHE_RETURN_IF_ERROR(RunRow(*session, "scattered", scattered, options));
  std::vector<int64_t> record;
  for (int64_t rank = size / 8; rank < size / 8 + std::min(kScatteredTokens, size / 4); ++rank) {
    record.push_back(rank);
  }
  return RunRow(*session, "in a row", record, options);
}

}  // namespace

absl::Status RunForgetBench(const BenchOptions& options) {
  LETHE_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, Model::Load(options.model_directory));
  if (!options.json) {
    std::printf(
        "machine: %s, one thread\nmodel: %s, median of %d runs (re-evaluation: at most %d); "
        "digests "
        "before and after included\nms: way taken, re-evaluation of the rest, their ratio; then "
        "the "
        "parts: local layers or model, replay, set change with last read, digests\n\n",
        MachineName().c_str(), model->config().name.c_str(), options.runs, kMaxReevaluations);
    PrintHeader();
  }
  for (const int64_t size : options.sizes) {
    LETHE_RETURN_IF_ERROR(RunSize(model, size, options));
  }
  return absl::OkStatus();
}

}  // namespace lethe::bench
