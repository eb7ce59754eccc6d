#include "server/generation/generation_target.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/diagnostics/log.h"
#include "server/session_registry/durable_entry.h"

namespace lethe {
namespace {

// For work that must be done although the client is gone.
class UnconditionalCall : public Call {
 public:
  absl::Status Check() const override { return absl::OkStatus(); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<GenerationTarget>> GenerationTarget::OfSession(
    std::shared_ptr<SessionEntry> entry,
    const std::string& subject) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  LETHE_RETURN_IF_ERROR(entry->LiveModelSession().status());
  LETHE_ASSIGN_OR_RETURN(std::shared_ptr<LabelledWriter> writer, entry->AdmitWriter(subject));
  LETHE_RETURN_IF_ERROR(entry->BeginWrite());
  std::unique_ptr<GenerationTarget> target(new GenerationTarget(std::move(entry)));
  target->writer_ = std::move(writer);
  return target;
}

absl::StatusOr<std::unique_ptr<GenerationTarget>> GenerationTarget::OfFork(
    std::shared_ptr<SessionEntry> entry,
    const std::string& subject) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  LETHE_ASSIGN_OR_RETURN(const Session* session, entry->LiveModelSession());
  LETHE_ASSIGN_OR_RETURN(std::shared_ptr<LabelledWriter> writer, entry->AdmitWriter(subject));
  auto fork = std::make_shared<SessionFork>();
  fork->session = session->Fork();
  fork->mark = entry->mark;
  entry->forks.push_back(fork);
  std::unique_ptr<GenerationTarget> target(new GenerationTarget(std::move(entry)));
  target->fork_ = std::move(fork);
  target->writer_ = std::move(writer);
  return target;
}

GenerationTarget::~GenerationTarget() {
  if (is_fork() || !may_write_) return;
  FairMutexLock lock(&entry_->mutex);
  EndWrite();
}

void GenerationTarget::EndWrite() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (is_fork()) return;
  may_write_ = false;
  entry_->EndWrite();
  entry_->Publish();
}

absl::Status GenerationTarget::Run(const Call& call, ComputeScheduler* scheduler,
                                   const Work& work) {
  if (is_fork()) {
    FairMutexLock lock(&fork_->mutex);
    if (fork_->session == nullptr) return SessionDeletedError();
    LETHE_ASSIGN_OR_RETURN(const ComputeSlot slot, scheduler->Acquire(call));
    return work(fork_->session.get(), fork_->mark);
  }
  FairMutexLock lock(&entry_->mutex);
  LETHE_ASSIGN_OR_RETURN(Session * session, entry_->LiveModelSession());
  LETHE_ASSIGN_OR_RETURN(const ComputeSlot slot, scheduler->Acquire(call));
  absl::Status status = work(session, entry_->mark);
  entry_->PublishLength();
  return status;
}

absl::Status GenerationTarget::Reserve(const Session& session,
                                       int64_t count) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (is_fork() || count == 0) return absl::OkStatus();
  return ReserveIds(session.next_token_id() + static_cast<uint64_t>(count), entry_.get());
}

void GenerationTarget::NoteDrawn(const Session& session) {
  if (!is_fork() && entry_->journal != nullptr) entry_->journal->NoteDrawn(session.inputs());
}

absl::Status GenerationTarget::Store(const RequestKey& request,
                                     std::shared_ptr<StoredAnswer> answer) {
  if (is_fork()) return absl::OkStatus();
  FairMutexLock lock(&entry_->mutex);
  LETHE_RETURN_IF_ERROR(entry_->LiveModelSession().status());
  LETHE_RETURN_IF_ERROR(CheckWriter());
  // By a Forget while the prompt came in.
  if (entry_->requests.IsForgotten(request.request_id)) answer->DropOpenings();
  LETHE_RETURN_IF_ERROR(StoreInputs(request, *answer, entry_.get()));
  entry_->requests.Remember(request, std::move(answer));
  return absl::OkStatus();
}

void GenerationTarget::TakeBack(ComputeScheduler* scheduler, std::vector<TokenIdRange> ranges) {
  if (is_fork()) return;
  FairMutexLock lock(&entry_->mutex);
  if (entry_->session == nullptr) return;
  // A Forget may have removed them first.
  const Inputs& inputs = entry_->session->inputs();
  const auto is_gone = [&inputs](const TokenIdRange& range) {
    const auto [first, end] = inputs.RanksOf(range);
    return first == end;
  };
  ranges.erase(std::remove_if(ranges.begin(), ranges.end(), is_gone), ranges.end());
  if (ranges.empty()) return;
  const UnconditionalCall call;
  absl::StatusOr<ComputeSlot> slot = scheduler->Acquire(call);
  auto staged = entry_->session->Stage(
      ForgetSelector::Ranges(std::move(ranges)), DerivedPolicy::kForgetDerived,
      [&] { return slot->Yield(call); }, std::nullopt);
  absl::Status taken = staged.status();
  if (taken.ok()) taken = StoreTakenBack(**staged, entry_.get());
  if (taken.ok()) taken = entry_->session->CommitStaged(*std::move(staged)).status();
  if (taken.ok()) {
    ++entry_->mark.epoch;
  } else {
    LogError(absl::StrCat("inputs that a lost client never got stay: ", taken.message()));
  }
  entry_->PublishLength();
}

}  // namespace lethe
