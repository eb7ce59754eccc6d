// ForkForgets: a Forget's reach into the running forks of its session.
//
// Equation:  none.
// Shapes:    none.
// Units:     token_ids.
// Requires:  the session's lock is held from before construction until after destruction; a compute
//            slot is taken after construction and held by Stage. Stage before Commit, both once.
// Rejects:   Stage: what the checkpoint says. A fork that cannot follow is no error: it is dropped at
//            Commit, and its stream ends.
// Effects:   locks the forks until destroyed. Stage computes what Commit puts into force: each fork
//            without what the session drops and without its own inputs with the forgotten label.
//            Destroyed without Commit it changes nothing.
// Numerics:  session.h.
// Threads:   one thread.
#ifndef LETHE_SERVER_CERTIFICATION_FORK_FORGET_H_
#define LETHE_SERVER_CERTIFICATION_FORK_FORGET_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

#include "server/session_registry/session_entry.h"

namespace lethe {

struct ForgetCommand;

class ForkForgets {
 public:
  explicit ForkForgets(std::vector<std::shared_ptr<SessionFork>> forks);
  ~ForkForgets();
  ForkForgets(const ForkForgets&) = delete;
  ForkForgets& operator=(const ForkForgets&) = delete;

  absl::Status Stage(absl::Span<const uint64_t> forgotten_ids, const ForgetCommand& command,
                     const Checkpoint& checkpoint);
  void Commit();
  bool empty() const { return staged_.empty(); }

 private:
  struct Staged {
    std::shared_ptr<SessionFork> fork;
    std::unique_ptr<StagedForget> forget;  // null: nothing of the fork goes, or it cannot follow
    bool lost = false;
  };
  std::vector<Staged> staged_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_CERTIFICATION_FORK_FORGET_H_
