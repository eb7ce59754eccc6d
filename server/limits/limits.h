// Limits: how much the server takes on, for all and for one tenant; and the errors that say so.
//
// Equation:  none.
// Shapes:    none.
// Units:     named in each field; 0 = no limit of its own where the field says so.
// Requires:  every field within the range that `lethe-server --help` shows.
// Rejects:   LimitError is RESOURCE_EXHAUSTED, TooLargeError INVALID_ARGUMENT (the same request will never do); both carry the
//            metadata limit (the option's name), max and got.
// Effects:   none.
// Numerics:  none. The defaults suit 2 cores and 4 GiB.
// Threads:   values.
#ifndef LETHE_SERVER_LIMITS_LIMITS_H_
#define LETHE_SERVER_LIMITS_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lethe {

struct Limits {
  // Of one request.
  int64_t prompt_tokens = 65'536;    // of a prompt or an input
  int64_t history_tokens = 0;        // that a session retains; 0: as many as its model takes
  int64_t deadline_seconds = 3'600;  // of a call whose client sets no deadline
  // Of the server.
  int64_t streams = 128;       // that run at once
  int64_t queue = 256;         // streams that wait until they may run
  int64_t queue_seconds = 30;  // that one waits
  // Of each tenant.
  int64_t tenant_streams = 16;                 // that run at once
  int64_t tenant_calls = 256;                  // that run or wait at once
  int64_t tenant_requests_per_second = 2'000;  // after a burst of twice as many; 0: no limit
  int64_t tenant_sessions = 0;                 // 0: as many as the server holds
  int64_t tenant_mib = 0;  // of its sessions, in memory and in snapshots on disk; 0: no limit
};

// Which limit was met.
struct LimitHit {
  absl::string_view reason;  // UPPER_SNAKE_CASE
  absl::string_view option;  // "--tenant-calls"
  int64_t max = 0;
  int64_t got = -1;  // -1: not one number
};

absl::Status LimitError(const LimitHit& hit, absl::string_view message);
absl::Status TooLargeError(const LimitHit& hit, absl::string_view field, absl::string_view unit);

}  // namespace lethe

#endif  // LETHE_SERVER_LIMITS_LIMITS_H_
