// GenerationTarget: the history that a Generate or an Append writes to: the session itself or a
// fork of it.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   OfSession, OfFork: what SessionEntry::AdmitWriter and BeginWrite reject. CheckWriter, Store: FAILED_PRECONDITION,
//            reason SUBJECT_BEING_FORGOTTEN, once the label that this writes under is forgotten in all sessions. Run: ABORTED, reason SESSION_DELETED;
//            what the work returns. Reserve, Store: reason SESSION_STORE.
// Effects:   a target of the session itself holds the session's right to write until it is
//            destroyed. A fork is registered with its session, so that every Forget reaches it, and
//            dropped with the target.
// Numerics:  none.
// Threads:   one thread per target; Run takes the history's lock, then a compute slot.
#ifndef LETHE_SERVER_GENERATION_GENERATION_TARGET_H_
#define LETHE_SERVER_GENERATION_GENERATION_TARGET_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"

#include "server/scheduler/compute_scheduler.h"
#include "server/session_registry/session_entry.h"

namespace lethe {

class GenerationTarget {
 public:
  // Work on the locked history: one token, or one piece of a prompt.
  using Work = std::function<absl::Status(Session*, const HistoryMark&)>;

  // `entry` must be locked; both keep it alive. `subject`: the label of what will be written.
  static absl::StatusOr<std::unique_ptr<GenerationTarget>> OfSession(
      std::shared_ptr<SessionEntry> entry, const std::string& subject);
  static absl::StatusOr<std::unique_ptr<GenerationTarget>> OfFork(
      std::shared_ptr<SessionEntry> entry, const std::string& subject);
  ~GenerationTarget();
  GenerationTarget(const GenerationTarget&) = delete;
  GenerationTarget& operator=(const GenerationTarget&) = delete;

  // Waits for the history and for a slot, and works; or what `call` says when its turn comes.
  absl::Status Run(const Call& call, ComputeScheduler* scheduler, const Work& work);
  // With the history locked, in Run: `count` ids that the client is about to be told, or that come in piece by piece.
  absl::Status Reserve(const Session& session, int64_t count);
  // The same: the token that was drawn last is to be stored before it is sent.
  void NoteDrawn(const Session& session);
  // Stores what the history has taken in and the request, and remembers that; no effect on a fork.
  absl::Status Store(const RequestKey& request, std::shared_ptr<StoredAnswer> answer);
  // Removes inputs that the client was never told of, where they are retained still; the client may
  // be gone. No effect on a fork.
  void TakeBack(ComputeScheduler* scheduler, std::vector<TokenIdRange> ranges);

  // With the session locked: its right to write ends now and not with the target. No effect on a fork.
  void EndWrite();

  // In Run, before anything is written.
  absl::Status CheckWriter() const {
    return is_stopped() ? SubjectBeingForgottenError() : absl::OkStatus();
  }
  // The label is being forgotten in all sessions, or was.
  bool is_stopped() const { return writer_ != nullptr && writer_->stopped; }
  bool is_fork() const { return fork_ != nullptr; }

 private:
  explicit GenerationTarget(std::shared_ptr<SessionEntry> entry) : entry_(std::move(entry)) {}

  const std::shared_ptr<SessionEntry> entry_;
  bool may_write_ = true;
  std::shared_ptr<SessionFork> fork_;       // null: the session itself
  std::shared_ptr<LabelledWriter> writer_;  // null: without a label
};

}  // namespace lethe

#endif  // LETHE_SERVER_GENERATION_GENERATION_TARGET_H_
