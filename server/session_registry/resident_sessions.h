// ResidentSessions: which sessions leave memory, so that those in use have room.
//
// Equation:  a sweep has every session leave that nobody used for idle_seconds; then, while those in memory hold more than
//            max_bytes, the one that was used longest ago.
// Shapes:    none.
// Units:     bytes as GetSession shows them (state, snapshots, stored inputs); microseconds of a steady clock.
// Requires:  none.
// Rejects:   none.
// Effects:   a session that is being used, or that is not stored, stays. What leaves is restored by its next use.
// Numerics:  none. A sweep looks at every session once; the budget may be exceeded between two.
// Threads:   safe; a sweep holds one session's lock at a time, and waits for none.
#ifndef LETHE_SERVER_SESSION_REGISTRY_RESIDENT_SESSIONS_H_
#define LETHE_SERVER_SESSION_REGISTRY_RESIDENT_SESSIONS_H_

#include <cstdint>

#include "server/session_registry/session_registry.h"

namespace lethe {

struct ResidentOptions {
  int64_t max_bytes = 0;     // 0: no limit
  int64_t idle_seconds = 0;  // 0: nobody is idle
};

struct SweepReport {
  int64_t num_idle = 0;      // that left for it
  int64_t num_over = 0;      // that left for the budget
  int64_t num_resident = 0;  // that stay
  int64_t resident_bytes = 0;
};

SweepReport SweepSessions(const ResidentOptions& options, const SessionRegistry& registry,
                          int64_t now_us);

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_RESIDENT_SESSIONS_H_
