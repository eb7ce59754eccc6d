#include "server/certification/fork_forget.h"

#include <set>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/certification/forgetter.h"

namespace lethe {
namespace {

// What goes from a fork: the session's forgotten inputs that it holds, and its own with the label.
std::vector<uint64_t> ForkIds(const Session& fork, absl::Span<const uint64_t> forgotten_ids,
                              const ForgetSelector& selector) {
  std::set<uint64_t> ids;
  for (const uint64_t id : forgotten_ids) {
    if (fork.inputs().FindRank(id) >= 0) ids.insert(id);
  }
  if (selector.subject.has_value()) {
    for (const int64_t rank : fork.inputs().RanksOfSubject(*selector.subject)) {
      ids.insert(fork.inputs().at(rank).token_id);
    }
  }
  return {ids.begin(), ids.end()};
}

}  // namespace

ForkForgets::ForkForgets(std::vector<std::shared_ptr<SessionFork>> forks)
    ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (std::shared_ptr<SessionFork>& fork : forks) {
    fork->mutex.Lock();
    staged_.push_back({std::move(fork), nullptr, false});
  }
}

absl::Status ForkForgets::Stage(absl::Span<const uint64_t> forgotten_ids,
                                const ForgetCommand& command,
                                const Checkpoint& checkpoint) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  // A fork cannot be asked: where the session had nothing derived, the fork's derived tokens go.
  const DerivedPolicy policy =
      command.policy == DerivedPolicy::kFail ? DerivedPolicy::kForgetDerived : command.policy;
  absl::Status stopped;
  const auto remembering = [&] { return stopped = checkpoint(); };
  for (Staged& staged : staged_) {
    const Session* session = staged.fork->session.get();
    if (session == nullptr) continue;
    std::vector<uint64_t> ids = ForkIds(*session, forgotten_ids, command.selector);
    if (ids.empty()) continue;
    absl::StatusOr<std::unique_ptr<StagedForget>> forget =
        session->StageForget(ForgetSelector::Ids(std::move(ids)), policy, remembering);
    if (forget.ok()) {
      staged.forget = *std::move(forget);
      continue;
    }
    LETHE_RETURN_IF_ERROR(stopped);
    staged.lost = true;
  }
  return absl::OkStatus();
}

ForkForgets::~ForkForgets() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (Staged& staged : staged_) {
    staged.forget.reset();
    staged.fork->mutex.Unlock();
  }
}

void ForkForgets::Commit() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  for (Staged& staged : staged_) {
    SessionFork& fork = *staged.fork;
    if (staged.lost) fork.session.reset();
    if (staged.forget == nullptr) continue;
    const absl::StatusOr<ForgetResult> result = fork.session->Commit(std::move(staged.forget));
    LETHE_CHECK(result.ok());
    fork.mark.epoch += 1;
    fork.mark.num_forgotten += result->num_tokens_before - result->num_tokens_after;
  }
}

}  // namespace lethe
