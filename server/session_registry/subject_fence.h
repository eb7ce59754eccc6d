// SubjectFence, LabelledWriter: what keeps inputs under a label out of every session while the label is being forgotten
// everywhere (server/forget_subject).
//
// Equation:  each tenant's labels are its own. Once Close has returned, whoever wants to bring inputs in under the label is refused; who was let in before
//            is a LabelledWriter of its session, and stops when that session is looked at. So a session that was
//            looked at after Close, under its lock, gets no input under the label until Open.
// Shapes:    labels are 1 to 128 bytes.
// Units:     none.
// Requires:  Close and Open of a label alternate (LETHE_CHECK).
// Rejects:   Check: FAILED_PRECONDITION, reason SUBJECT_BEING_FORGOTTEN, metadata field "subject" and retry_after_ms; an
//            empty label never.
// Effects:   labels are content: they are overwritten when they go, and never in a message.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_SESSION_REGISTRY_SUBJECT_FENCE_H_
#define LETHE_SERVER_SESSION_REGISTRY_SUBJECT_FENCE_H_

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "kernels/base/mutex.h"

namespace lethe {

// The error of Check, also for a writer that was stopped.
absl::Status SubjectBeingForgottenError();

// An Append or Generate under way that brings inputs in under a label.
struct LabelledWriter {
  explicit LabelledWriter(std::string label) : subject(std::move(label)) {}
  ~LabelledWriter();
  LabelledWriter(const LabelledWriter&) = delete;
  LabelledWriter& operator=(const LabelledWriter&) = delete;

  std::string subject;
  std::atomic<bool> stopped{false};
};

class SubjectFence {
 public:
  SubjectFence() = default;
  ~SubjectFence();
  SubjectFence(const SubjectFence&) = delete;
  SubjectFence& operator=(const SubjectFence&) = delete;

  absl::Status Check(absl::string_view tenant, absl::string_view subject) const;
  bool IsClosed(absl::string_view tenant, absl::string_view subject) const;
  void Close(absl::string_view tenant, absl::string_view subject);
  void Open(absl::string_view tenant, absl::string_view subject);

 private:
  mutable Mutex mutex_;
  struct Label {
    std::string tenant;
    std::string subject;
  };
  std::vector<Label> closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_SUBJECT_FENCE_H_
