// ForkForgets: a Forget's reach into the running forks of its session.
//
// Equation:  none.
// Shapes:    none.
// Units:     token_ids.
// Requires:  the session's lock is held from before construction until after destruction.
// Rejects:   none: a fork that cannot follow is dropped at Commit, and its stream ends.
// Effects:   locks the forks until destroyed. Commit drops from each fork what the session drops,
//            and the fork's own inputs with the forgotten label. Destroyed without Commit it
//            changes nothing.
// Numerics:  session.h.
// Threads:   one thread.
#ifndef LETHE_SERVER_CERTIFICATION_FORK_FORGET_H_
#define LETHE_SERVER_CERTIFICATION_FORK_FORGET_H_

#include <memory>
#include <vector>

#include "absl/types/span.h"

#include "server/session_registry/session_entry.h"

namespace lethe {

struct ForgetCommand;

class ForkForgets {
 public:
  ForkForgets(std::vector<std::shared_ptr<SessionFork>> forks,
              absl::Span<const uint64_t> forgotten_ids, const ForgetCommand& command);
  ~ForkForgets();
  ForkForgets(const ForkForgets&) = delete;
  ForkForgets& operator=(const ForkForgets&) = delete;

  void Commit();

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
