// ResidentSessions: which sessions leave memory, so that those in use have room.
//
// Equation:  a sweep has every session leave that nobody used for idle_seconds; then, while those in memory hold more than
//            max_bytes, the one that was used longest ago. Before it leaves, and when it was not used for kSpillAfterSeconds,
//            snapshots of its state are stored (restore.h); those of sessions that were used longest ago are dropped while
//            all take more than max_snapshot_bytes.
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
#include <functional>

#include "server/session_registry/session_registry.h"

namespace lethe {

struct ResidentOptions {
  int64_t max_bytes = 0;           // 0: no limit
  int64_t idle_seconds = 0;        // 0: nobody is idle
  int64_t max_snapshot_bytes = 0;  // on disk; 0: none are stored
};

struct SweepReport {
  int64_t num_idle = 0;      // that left for it
  int64_t num_over = 0;      // that left for the budget
  int64_t num_resident = 0;  // that stay
  int64_t resident_bytes = 0;
  int64_t num_spilled = 0;     // sessions whose snapshots were stored
  int64_t num_unspilled = 0;   // sessions whose snapshots were dropped for the budget
  int64_t snapshot_bytes = 0;  // on disk
};

inline constexpr int64_t kSpillAfterSeconds = 5;

SweepReport SweepSessions(const ResidentOptions& options, const SessionRegistry& registry,
                          int64_t now_us);

// Stores snapshots of every session in memory for which that pays, as before an orderly end, while `go_on`; returns how
// many sessions.
int64_t SpillSessions(const SessionRegistry& registry, const std::function<bool()>& go_on);

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_RESIDENT_SESSIONS_H_
