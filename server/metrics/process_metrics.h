// WriteProcessMetrics: this process's memory, processor time, files and start, under Prometheus' usual names.
//
// Equation:  none.
// Shapes:    none.
// Units:     bytes, seconds.
// Requires:  none.
// Rejects:   none: what /proc does not tell is left out.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_METRICS_PROCESS_METRICS_H_
#define LETHE_SERVER_METRICS_PROCESS_METRICS_H_

#include <cstdint>
#include <string>

#include "server/metrics/metrics_page.h"

namespace lethe {

void WriteProcessMetrics(MetricsPage* page);

// Of the files in a directory, not in those below it; 0 without one.
int64_t DirectoryBytes(const std::string& path);

}  // namespace lethe

#endif  // LETHE_SERVER_METRICS_PROCESS_METRICS_H_
