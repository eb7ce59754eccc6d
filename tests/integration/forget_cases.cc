#include "tests/integration/forget_cases.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <ostream>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "kernels/sampling/sampling.h"
#include "memory/memory.h"

namespace lethe::testing {
namespace {

constexpr int64_t kSampleTokens = 6;
constexpr int32_t kAlphabet =
    24;  // few symbols, so that repetition penalties and duplicates matter

std::vector<int32_t> RandomText(int64_t count, uint32_t seed, int64_t vocab_size) {
  std::mt19937 random(seed);
  const int64_t symbols = std::min<int64_t>(kAlphabet, vocab_size);
  std::vector<int32_t> text(static_cast<size_t>(count));
  for (int32_t& id : text) id = static_cast<int32_t>(random() % static_cast<uint32_t>(symbols));
  return text;
}

SamplingParameters SampleRules(uint64_t seed) {
  SamplingParameters rules;
  rules.temperature = 0.9;
  rules.top_k = 12;
  rules.repetition_penalty = 1.4;
  rules.seed = seed;
  return rules;
}

absl::StatusOr<int32_t> Draw(Session* session, uint64_t seed) {
  const std::vector<int64_t> counts(session->repetition_counts().begin(),
                                    session->repetition_counts().end());
  LETHE_ASSIGN_OR_RETURN(
      const SampledToken token,
      Sample(session->logits(), counts, SampleRules(seed), session->num_tokens()));
  return token.vocab_id;
}

// Appends in calls whose sizes follow one of several patterns.
absl::Status AppendCut(Session* session, const std::vector<int32_t>& text, uint32_t pattern,
                       const std::string& subject) {
  std::mt19937 random(pattern);
  const std::vector<int64_t> fixed = {1, 7, 63, 64, 65, 1 << 20};
  size_t done = 0;
  while (done < text.size()) {
    const uint32_t choice = pattern % 8;
    const int64_t size = choice < fixed.size() ? fixed[choice] : 1 + random() % 150;
    const size_t count = std::min(text.size() - done, static_cast<size_t>(size));
    LETHE_RETURN_IF_ERROR(
        session
            ->Append(absl::MakeConstSpan(text).subspan(done, count), subject, InputKind::kAppended)
            .status());
    done += count;
  }
  return absl::OkStatus();
}

ForgetSelector Ranks(const Session& session, int64_t first, int64_t end) {
  std::vector<uint64_t> ids;
  for (int64_t rank = first; rank < end; ++rank) ids.push_back(session.inputs().at(rank).token_id);
  return ForgetSelector::Ids(ids);
}

ForgetSelector Select(const Session& session, const Operation& operation) {
  const int64_t n = session.num_tokens();
  const int64_t place = static_cast<int64_t>(operation.where) % n;
  switch (operation.size % 10) {
    case 0:
      return Ranks(session, 0, 1);
    case 1:
      return Ranks(session, n - 1, n);
    case 2: {  // a whole chunk
      const int64_t chunk = place / kChunkTokens * kChunkTokens;
      return Ranks(session, chunk, std::min(n, chunk + kChunkTokens));
    }
    case 3:  // a run
      return ForgetSelector::Ranges(
          {{session.inputs().at(place).token_id,
            session.inputs().at(std::min(n - 1, place + 20)).token_id + 1}});
    case 4: {  // scattered
      std::mt19937 random(operation.where);
      std::vector<uint64_t> ids;
      for (int i = 0; i < 8; ++i) {
        ids.push_back(session.inputs().at(static_cast<int64_t>(random()) % n).token_id);
      }
      std::sort(ids.begin(), ids.end());
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      return ForgetSelector::Ids(ids);
    }
    case 5:  // all that was given under one label, if there is such
      for (const char* subject : {"patient-0", "patient-1"}) {
        if (!session.inputs().RanksOfSubject(subject).empty()) {
          return ForgetSelector::Subject(subject);
        }
      }
      return Ranks(session, place, place + 1);
    case 6:
      if (place > 0) return ForgetSelector::Before(session.inputs().at(place).token_id);
      return Ranks(session, 0, 1);
    case 7:  // the last part
      return Ranks(session, std::max(place, n - n / 4 - 1), n);
    case 8:
      if (operation.where % 4 == 0) return ForgetSelector::Everything();
      return Ranks(session, place, std::min(n, place + 2));
    default:
      return Ranks(session, place, place + 1);
  }
}

std::string FirstDifference(const Observation& got, const Observation& want) {
  if (got.digest_parts != want.digest_parts) {
    std::string difference = "digest parts differ:";
    size_t g = 0;
    size_t w = 0;
    while (g < got.digest_parts.size() && w < want.digest_parts.size()) {
      const size_t g_end = std::min(got.digest_parts.find('\n', g), got.digest_parts.size());
      const size_t w_end = std::min(want.digest_parts.find('\n', w), want.digest_parts.size());
      const std::string line = got.digest_parts.substr(g, g_end - g);
      if (line != want.digest_parts.substr(w, w_end - w)) {
        absl::StrAppend(&difference, " ", line.substr(0, line.find(' ')));
      }
      g = g_end + 1;
      w = w_end + 1;
    }
    return difference;
  }
  if (got.logits != want.logits) return "next-token logits differ";
  if (got.text != want.text) return "seeded text differs";
  return "";
}

struct PathsOutcome {
  std::string difference;  // between replay and re-evaluation
  bool replayed = false;
  int64_t dropped_inputs = 0;
};

std::string DifferenceOf(const StagedForget& a, const StagedForget& b) {
  if (a.result().digest_after != b.result().digest_after) {
    return "replay and re-evaluation differ in their digests";
  }
  if (a.state().num_tokens() == 0) return "";
  const auto logits_of = [](const StagedForget& staged) {
    std::vector<float> logits(static_cast<size_t>(staged.state().model().config().vocab_size));
    const absl::Status status = staged.state().Logits(absl::MakeSpan(logits));
    return status.ok() ? logits : std::vector<float>();
  };
  const std::vector<float> x = logits_of(a);
  const std::vector<float> y = logits_of(b);
  const bool equal = !x.empty() && x.size() == y.size() &&
                     std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  return equal ? "" : "replay and re-evaluation differ in their logits";
}

// Stages the Forget on both paths, compares, and commits one of them.
absl::StatusOr<PathsOutcome> ForgetOnBothPaths(Session* session, const Operation& operation) {
  const ForgetSelector selector = Select(*session, operation);
  const DerivedPolicy policy =
      operation.policy % 2 == 0 ? DerivedPolicy::kKeepAndReport : DerivedPolicy::kForgetDerived;
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<StagedForget> replay,
                         session->StageForget(selector, policy, {}, ForgetWay::kReplay));
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<StagedForget> reevaluation,
                         session->StageForget(selector, policy, {}, ForgetWay::kReevaluation));
  PathsOutcome outcome;
  outcome.difference = DifferenceOf(*replay, *reevaluation);
  outcome.replayed = replay->result().way == ForgetWay::kReplay;
  outcome.dropped_inputs = replay->result().dropped_inputs;
  const bool commit_replay = operation.where % 4 != 3;
  LETHE_RETURN_IF_ERROR(
      session->Commit(commit_replay ? std::move(replay) : std::move(reevaluation)).status());
  return outcome;
}

struct Shared {
  const ForgetCase* forget_case;
  const Oracle* oracle;
  std::mutex mutex;
  std::string failure;
  Coverage* coverage;
};

absl::Status LiveOperation(Session* session, const Operation& operation, size_t index,
                           Shared* shared) {
  const Model& model = session->model();
  if (operation.kind == OperationKind::kAppend) {
    const std::string subject =
        operation.where % 3 == 0 ? absl::StrCat("patient-", index % 2) : std::string();
    return AppendCut(session,
                     RandomText(operation.size, operation.where, model.config().vocab_size),
                     operation.where, subject);
  }
  if (session->num_tokens() == 0) return absl::OkStatus();
  if (operation.kind == OperationKind::kGenerate) {
    for (uint32_t i = 0; i < operation.size; ++i) {
      LETHE_ASSIGN_OR_RETURN(const int32_t id, Draw(session, operation.where));
      LETHE_RETURN_IF_ERROR(session->AppendGenerated(id).status());
    }
    return absl::OkStatus();
  }
  const int64_t before = session->num_tokens();
  LETHE_ASSIGN_OR_RETURN(const PathsOutcome paths, ForgetOnBothPaths(session, operation));
  LETHE_ASSIGN_OR_RETURN(const Observation got, Observe(*session));
  const std::lock_guard<std::mutex> lock(shared->mutex);
  ++shared->coverage->forgets;
  shared->coverage->replays += paths.replayed ? 1 : 0;
  shared->coverage->dropped_inputs += paths.dropped_inputs;
  if (!paths.difference.empty() && shared->failure.empty()) {
    shared->failure = absl::StrCat("operation ", index, ": ", paths.difference);
  }
  const int64_t offset = before % kChunkTokens;
  if (offset <= 1 || offset == kChunkTokens - 1) ++shared->coverage->at_grid;
  LETHE_ASSIGN_OR_RETURN(const Observation want,
                         (*shared->oracle)(shared->forget_case->stack, session->vocab_ids()));
  const std::string difference = FirstDifference(got, want);
  if (!difference.empty() && shared->failure.empty()) {
    shared->failure = absl::StrCat("after Forget (operation ", index, ", ", before, " -> ",
                                   session->num_tokens(), " tokens): ", difference);
  }
  return absl::OkStatus();
}

void Live(const std::shared_ptr<const Model>& model, const std::vector<Operation>& operations,
          int64_t* longest, Shared* shared) {
  SessionOptions options;
  // One case in three cannot store what all of its tokens gave the bank.
  if (operations.size() % 3 == 0) options.stored_input_bytes = size_t{100} << 10;
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Create(model, options);
  absl::Status status = session.status();
  for (size_t i = 0; i < operations.size() && status.ok(); ++i) {
    status = LiveOperation(session->get(), operations[i], i, shared);
    *longest = std::max(*longest, (*session)->num_tokens());
  }
  if (!status.ok()) {
    const std::lock_guard<std::mutex> lock(shared->mutex);
    if (shared->failure.empty()) shared->failure = std::string(status.ToString());
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& stream, const ForgetCase& value) {
  stream << "stack " << value.stack << (value.threads ? ", threads" : "");
  for (const std::vector<Operation>& operations : value.sessions) {
    stream << "\n  session:";
    for (const Operation& operation : operations) {
      stream << " {" << static_cast<int>(operation.kind) << "," << operation.size << ","
             << operation.where << "," << operation.policy << "}";
    }
  }
  return stream;
}

absl::StatusOr<Observation> Observe(const Session& session) {
  Observation observation;
  const audit::StateParts parts = session.StateParts();
  for (const audit::StatePart& part : parts.parts()) {
    absl::StrAppend(&observation.digest_parts, part.name, " ",
                    absl::BytesToHexString(absl::string_view(
                        reinterpret_cast<const char*>(part.hash.data()), part.hash.size())),
                    "\n");
  }
  if (session.num_tokens() == 0) return observation;
  const std::unique_ptr<Session> fork = session.Fork();
  const absl::Span<const float> logits = fork->logits();
  observation.logits = absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float)));
  for (int64_t i = 0; i < kSampleTokens; ++i) {
    LETHE_ASSIGN_OR_RETURN(const int32_t id, Draw(fork.get(), 7));
    absl::StrAppend(&observation.text, id, " ");
    LETHE_RETURN_IF_ERROR(fork->AppendGenerated(id).status());
  }
  return observation;
}

std::string RunForgetCase(const ForgetCase& forget_case,
                          const std::vector<std::shared_ptr<const Model>>& stacks,
                          const Oracle& oracle, Coverage* coverage) {
  ForgetCase chosen = forget_case;
  chosen.stack %= static_cast<uint32_t>(stacks.size());
  Shared shared{&chosen, &oracle, {}, {}, coverage};
  const std::shared_ptr<const Model>& model = stacks[chosen.stack];
  std::vector<int64_t> longest(chosen.sessions.size(), 0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < chosen.sessions.size(); ++i) {
    const auto live = [&, i] { Live(model, chosen.sessions[i], &longest[i], &shared); };
    if (chosen.threads) {
      threads.emplace_back(live);
    } else {
      live();
    }
  }
  for (std::thread& thread : threads) thread.join();
  const int64_t most = longest.empty() ? 0 : *std::max_element(longest.begin(), longest.end());
  ++coverage->cases;
  coverage->longest = std::max(coverage->longest, most);
  if (most >= 3 * kChunkTokens) ++coverage->three_chunks;
  if (most >= model->config().local_receptive_field + 128) ++coverage->beyond_window;
  if (most >= 1500) ++coverage->very_long;
  return shared.failure;
}

}  // namespace lethe::testing
