// Call: the client behind a piece of work, as far as the work needs to know it: is it still wanted, and by whom?
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  the Call outlives the work.
// Rejects:   Check: CANCELLED (the client is gone), DEADLINE_EXCEEDED.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_SCHEDULER_CALL_H_
#define LETHE_SERVER_SCHEDULER_CALL_H_

#include "absl/status/status.h"

#include "server/identity/principal.h"

namespace lethe {

class Call {
 public:
  virtual ~Call() = default;
  // OK while the client still waits for the answer.
  virtual absl::Status Check() const = 0;
  // True once the server wants running streams to end at their next token boundary.
  virtual bool stopping() const { return false; }
  virtual const Principal& principal() const { return LocalPrincipal(); }
};

}  // namespace lethe

#endif  // LETHE_SERVER_SCHEDULER_CALL_H_
