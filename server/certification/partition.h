// ListPartition: the rows of one support-vector head, a page at a time.
//
// Equation:  alpha = a/m; g = rho - h, h = 1 - 2 ((K + ridge I) a)_i / m (memory/svdd/problem.h).
// Shapes:    rows in rank order over the gated keys.
// Units:     none.
// Requires:  page_size > 0.
// Rejects:   NOT_FOUND, reason HEAD_NOT_FOUND; ABORTED, reason HISTORY_CHANGED; INVALID_ARGUMENT
//            for a foreign page_token.
// Effects:   none.
// Numerics:  the fixed Gram routine, fp64 sums in rank order; on the margin set g is the solution's
//            rounding. O(page |S u E| d).
// Threads:   safe.
#ifndef LETHE_SERVER_CERTIFICATION_PARTITION_H_
#define LETHE_SERVER_CERTIFICATION_PARTITION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "memory/svdd/problem.h"
#include "server/scheduler/compute_scheduler.h"
#include "server/session_registry/session_entry.h"

namespace lethe {

struct PartitionQuery {
  std::string head;  // empty = the first one
  int64_t page_size = 0;
  std::string page_token;
};

struct PartitionEntry {
  uint64_t token_id = 0;
  svdd::Partition partition = svdd::Partition::kReserve;
  double alpha = 0.0;
  double g = 0.0;
};

struct PartitionPage {
  std::string head;
  std::vector<PartitionEntry> rows;
  std::string next_page_token;
  double rho = 0.0;
  double mass = 0.0;
};

absl::StatusOr<PartitionPage> ListPartition(const PartitionQuery& query, const Call& call,
                                            ComputeScheduler* scheduler,
                                            const std::shared_ptr<SessionEntry>& entry);

}  // namespace lethe

#endif  // LETHE_SERVER_CERTIFICATION_PARTITION_H_
