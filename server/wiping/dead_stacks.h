// WipeDeadStacks, WipeOwnDeadStack, KnownStack: what returned functions left on the stacks of this process's threads.
//
// Equation:  a thread's dead stack is what lies below its stack pointer: no function that runs needs it.
// Shapes:    none.
// Units:     none.
// Requires:  KnownStack: one object per thread, made and destroyed by that thread, which outlives everything on its
//            stack that is to be wiped.
// Rejects:   WipeDeadStacks: UNAVAILABLE when a thread has not answered within kWipeSeconds; what AlsoWipe's say.
// Effects:   WipeDeadStacks: zeros below the stack pointer of the caller and of every other thread that has a
//            KnownStack. The others do it in a signal handler (SIGRTMIN + 6, installed with SA_RESTART at the first
//            KnownStack), so calls of the system that are never restarted may end with EINTR once. Whole pages are
//            given back to the system. The caller's vector registers are zeroed; what another thread has in registers
//            stays, and so does the copy of them that the kernel puts on its stack for the handler. So whoever handles
//            content ends with WipeOwnDeadStack.
// Numerics:  none. About 10 us for each thread.
// Threads:   safe.
#ifndef LETHE_SERVER_WIPING_DEAD_STACKS_H_
#define LETHE_SERVER_WIPING_DEAD_STACKS_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include <pthread.h>

namespace lethe {

inline constexpr int kWipeSeconds = 10;

class KnownStack {
 public:
  KnownStack();
  ~KnownStack();
  KnownStack(const KnownStack&) = delete;
  KnownStack& operator=(const KnownStack&) = delete;

 private:
  friend absl::Status WipeDeadStacks();

  const pthread_t thread_;
  KnownStack* previous_ = nullptr;
  KnownStack* next_ = nullptr;
};

absl::Status WipeDeadStacks();
// WipeDeadStacks calls it first, from now on: for memory that is no thread's stack and outlives what used it.
void AlsoWipe(std::function<absl::Status()> wipe);
void WipeOwnDeadStack();
// Of the calling thread.
bool OwnStackIsKnown();

}  // namespace lethe

#endif  // LETHE_SERVER_WIPING_DEAD_STACKS_H_
