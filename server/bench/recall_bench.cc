#include <algorithm>
#include <cstdio>
#include <memory>

#include "kernels/base/status_macros.h"
#include "server/bench/benches.h"
#include "server/bench/recall.h"
#include "server/bench/report.h"

namespace lethe::bench {
namespace {

constexpr char kUnknownReply[] = " unknown.";

struct Counts {
  int64_t cases = 0;
  int64_t recalled = 0;    // the reply is the answer, every byte
  int64_t unknown = 0;     // " unknown." after the Forget
  int64_t still_told = 0;  // the answer after the Forget: a guess, or a leak
  int64_t forgotten = 0;   // digest, logits and reply of a session never told
  int64_t back_min = INT64_MAX;
  int64_t back_max = 0;
  int64_t tokens_min = INT64_MAX;
  int64_t tokens_max = 0;

  void Add(const RecallCase& asked, const RecallOutcome& outcome) {
    ++cases;
    recalled += outcome.reply == asked.answer ? 1 : 0;
    unknown += outcome.reply_after == kUnknownReply ? 1 : 0;
    still_told += outcome.reply_after == asked.answer ? 1 : 0;
    forgotten += outcome.Forgotten() ? 1 : 0;
    back_min = std::min(back_min, asked.back);
    back_max = std::max(back_max, asked.back);
    tokens_min = std::min(tokens_min, outcome.num_tokens);
    tokens_max = std::max(tokens_max, outcome.num_tokens);
  }
};

void Print(const Counts& counts, double seconds, bool json) {
  const auto number = [](int64_t value) { return static_cast<long long>(value); };
  if (json) {
    std::printf(
        "{\"bench\":\"recall\",\"cases\":%lld,\"recalled\":%lld,\"unknown_after_forget\":%lld,"
        "\"answer_after_forget\":%lld,\"equal_to_never_told\":%lld,\"back_min\":%lld,"
        "\"back_max\":%lld,\"tokens_min\":%lld,\"tokens_max\":%lld,\"seconds\":%.1f}\n",
        number(counts.cases), number(counts.recalled), number(counts.unknown),
        number(counts.still_told), number(counts.forgotten), number(counts.back_min),
        number(counts.back_max), number(counts.tokens_min), number(counts.tokens_max), seconds);
    return;
  }
  std::printf(
      "cases                                          %6lld   histories of %lld to %lld tokens,\n"
      "                                                        records %lld to %lld tokens back\n"
      "recalled, every byte of the value              %6lld\n"
      "after the Forget of the record:\n"
      "  digest, logits and reply of a never-told one %6lld\n"
      "  the reply is \" unknown.\"                     %6lld\n"
      "  the reply is the value                       %6lld\n"
      "%.1f s\n",
      number(counts.cases), number(counts.tokens_min), number(counts.tokens_max),
      number(counts.back_min), number(counts.back_max), number(counts.recalled),
      number(counts.forgotten), number(counts.unknown), number(counts.still_told), seconds);
}

void PrintMiss(size_t index, const RecallCase& asked, const RecallOutcome& outcome) {
  std::fprintf(stderr, "case %zu: %s|%s| want |%s|; after the Forget |%s|%s\n", index + 1,
               asked.query.c_str(), outcome.reply.c_str(), asked.answer.c_str(),
               outcome.reply_after.c_str(),
               outcome.Forgotten() ? "" : "; NOT EQUAL to a session never told");
}

}  // namespace

absl::Status RunRecallBench(const BenchOptions& options) {
  LETHE_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, Model::Load(options.model_directory));
  LETHE_ASSIGN_OR_RETURN(const std::vector<RecallCase> cases, ReadRecallCases(options.cases_path));
  Counts counts;
  const double start = Now();
  for (size_t i = 0; i < cases.size(); ++i) {
    LETHE_ASSIGN_OR_RETURN(const RecallOutcome outcome, RunRecallCase(model, cases[i]));
    counts.Add(cases[i], outcome);
    if (outcome.reply != cases[i].answer || !outcome.Forgotten()) PrintMiss(i, cases[i], outcome);
  }
  Print(counts, Now() - start, options.json);
  if (counts.forgotten != counts.cases) {
    return absl::InternalError("a session differs from one never told");
  }
  return absl::OkStatus();
}

}  // namespace lethe::bench
