// KeepIfDisclosed: the end of a handler whose answer is content, which an auditor gets of a disclosed state alone.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  the answer is of the session's state at some moment of this call; the session's lock is not held.
// Rejects:   as CheckDisclosed (server/certification/disclosure.h).
// Effects:   on an error the answer is emptied.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_DISCLOSED_ANSWER_H_
#define LETHE_SERVER_RPC_DISCLOSED_ANSWER_H_

#include "absl/status/status.h"

#include "server/certification/disclosure.h"
#include "server/rpc/server_core.h"
#include "server/scheduler/call.h"

namespace lethe {

template <typename Response>
absl::Status KeepIfDisclosed(const Call& call, const ServerCore& core, SessionEntry* entry,
                             Response* response) {
  absl::Status status = CheckDisclosed(call.principal(), core.trail, entry);
  if (!status.ok()) response->Clear();
  return status;
}

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_DISCLOSED_ANSWER_H_
