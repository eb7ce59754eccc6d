#include "server/session_registry/resident_sessions.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "server/session_registry/restore.h"

namespace lethe {
namespace {

struct Resident {
  int64_t last_use_us = 0;
  int64_t bytes = 0;
  std::shared_ptr<SessionEntry> entry;
};

std::vector<Resident> ResidentsOf(const SessionRegistry& registry) {
  std::vector<Resident> residents;
  for (auto& entry : registry.List("", std::numeric_limits<size_t>::max())) {
    const SessionInfo info = entry->Info();
    const int64_t bytes = info.state_bytes + info.snapshot_bytes + info.stored_input_bytes;
    if (bytes > 0) residents.push_back({entry->last_use_us(), bytes, std::move(entry)});
  }
  std::sort(residents.begin(), residents.end(),
            [](const Resident& a, const Resident& b) { return a.last_use_us < b.last_use_us; });
  return residents;
}

// False when it is in use, or was since `last_use_us`.
bool TryEvict(const Resident& resident) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  SessionEntry& entry = *resident.entry;
  if (!entry.mutex.TryLock()) return false;
  const bool left = entry.last_use_us() == resident.last_use_us && Evict(&entry);
  entry.mutex.Unlock();
  return left;
}

}  // namespace

SweepReport SweepSessions(const ResidentOptions& options, const SessionRegistry& registry,
                          int64_t now_us) {
  SweepReport report;
  const std::vector<Resident> residents = ResidentsOf(registry);
  for (const Resident& resident : residents) report.resident_bytes += resident.bytes;
  report.num_resident = static_cast<int64_t>(residents.size());
  for (const Resident& resident : residents) {
    const bool idle = options.idle_seconds > 0 &&
                      now_us - resident.last_use_us >= options.idle_seconds * 1'000'000;
    const bool over = options.max_bytes > 0 && report.resident_bytes > options.max_bytes;
    if (!idle && !over) break;
    if (!TryEvict(resident)) continue;
    ++(idle ? report.num_idle : report.num_over);
    --report.num_resident;
    report.resident_bytes -= resident.bytes;
  }
  return report;
}

}  // namespace lethe
