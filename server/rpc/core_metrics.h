// CoreMetrics: the page of metrics of a running server (deploy/OPERATIONS.md explains each).
//
// Equation:  none.
// Shapes:    label sets are fixed: methods, codes, limits, kinds of bytes. No tenant, session, model or label of a client's.
// Units:     as server/metrics.
// Requires:  none.
// Rejects:   none.
// Effects:   looks at the sizes of every session (SessionEntry::Info): never waits for an evaluation.
// Numerics:  O(sessions).
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_CORE_METRICS_H_
#define LETHE_SERVER_RPC_CORE_METRICS_H_

#include <string>

#include "server/rpc/server_core.h"

namespace lethe {

struct MetricsPlaces {
  std::string data_directory;  // empty: its sizes are left out
  std::string erasure_ledger;  // likewise
  std::string version;
};

std::string CoreMetrics(const ServerCore& core, const MetricsPlaces& places);

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_CORE_METRICS_H_
