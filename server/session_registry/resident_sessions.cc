#include "server/session_registry/resident_sessions.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "server/diagnostics/log.h"
#include "server/session_registry/restore.h"

namespace lethe {
namespace {

struct Candidate {
  int64_t last_use_us = 0;
  int64_t bytes = 0;  // in memory
  std::shared_ptr<SessionEntry> entry;
};

// Those that are in memory or have snapshots on disk, the one used longest ago first.
std::vector<Candidate> CandidatesOf(const SessionRegistry& registry) {
  std::vector<Candidate> candidates;
  for (auto& entry : registry.List("", std::numeric_limits<size_t>::max())) {
    const SessionInfo info = entry->Info();
    const int64_t bytes = info.state_bytes + info.snapshot_bytes + info.stored_input_bytes;
    const bool spilled = entry->journal != nullptr && entry->journal->num_snapshots() > 0;
    if (bytes > 0 || spilled) candidates.push_back({entry->last_use_us(), bytes, std::move(entry)});
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.last_use_us < b.last_use_us; });
  return candidates;
}

int64_t SnapshotBytesOf(const Candidate& candidate) {
  return candidate.entry->journal == nullptr ? 0 : candidate.entry->journal->snapshot_bytes();
}

// Runs `work` unless the session is in use, or was since it was looked at.
bool TryWith(const Candidate& candidate,
             const std::function<bool(SessionEntry*)>& work) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  SessionEntry& entry = *candidate.entry;
  if (!entry.mutex.TryLock()) return false;
  const bool worked = entry.last_use_us() == candidate.last_use_us && work(&entry);
  entry.mutex.Unlock();
  return worked;
}

bool TrySpill(SessionEntry* entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (entry->writing || !IsWorthSpilling(*entry)) return false;
  const absl::Status spilled = Spill(entry);
  if (!spilled.ok()) {
    LogError(absl::StrCat("a snapshot of stored session ", entry->journal->number(),
                          " was not stored: ", spilled.message()));
  }
  return spilled.ok();
}

class Sweep {
 public:
  Sweep(const ResidentOptions& options, const SessionRegistry& registry, int64_t now_us)
      : options_(options), now_us_(now_us), candidates_(CandidatesOf(registry)) {}

  SweepReport Run() {
    for (const Candidate& candidate : candidates_) {
      report_.resident_bytes += candidate.bytes;
      report_.snapshot_bytes += SnapshotBytesOf(candidate);
      if (candidate.bytes > 0) ++report_.num_resident;
    }
    for (const Candidate& candidate : candidates_) {
      if (candidate.bytes == 0) continue;
      SpillIdle(candidate);
      Leave(candidate);
    }
    for (const Candidate& candidate : candidates_) {
      if (report_.snapshot_bytes <= options_.max_snapshot_bytes) break;
      Unspill(candidate);
    }
    return report_;
  }

 private:
  bool IsIdle(const Candidate& candidate, int64_t seconds) const {
    return seconds > 0 && now_us_ - candidate.last_use_us >= seconds * 1'000'000;
  }
  void CountSpilled(const Candidate& candidate, int64_t before) {
    ++report_.num_spilled;
    report_.snapshot_bytes += SnapshotBytesOf(candidate) - before;
  }
  // Only where there is room: what is stored for one session must not be dropped for another that is in memory.
  void SpillIdle(const Candidate& candidate) {
    if (report_.snapshot_bytes + candidate.bytes > options_.max_snapshot_bytes ||
        !IsIdle(candidate, kSpillAfterSeconds)) {
      return;
    }
    const int64_t before = SnapshotBytesOf(candidate);
    if (TryWith(candidate, TrySpill)) CountSpilled(candidate, before);
  }
  void Leave(const Candidate& candidate) {
    const bool idle = IsIdle(candidate, options_.idle_seconds);
    const bool over = options_.max_bytes > 0 && report_.resident_bytes > options_.max_bytes;
    if (!idle && !over) return;
    const int64_t before = SnapshotBytesOf(candidate);
    bool spilled = false;
    const auto leave = [&](SessionEntry* entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      if (options_.max_snapshot_bytes > 0) spilled = TrySpill(entry);
      return Evict(entry);
    };
    const bool left = TryWith(candidate, leave);
    if (spilled) CountSpilled(candidate, before);
    if (!left) return;
    ++(idle ? report_.num_idle : report_.num_over);
    --report_.num_resident;
    report_.resident_bytes -= candidate.bytes;
  }
  void Unspill(const Candidate& candidate) {
    const int64_t before = SnapshotBytesOf(candidate);
    const auto drop = [](SessionEntry* entry) { return entry->journal->DropSnapshots().ok(); };
    if (before == 0 || !TryWith(candidate, drop)) return;
    ++report_.num_unspilled;
    report_.snapshot_bytes -= before;
  }

  const ResidentOptions options_;
  const int64_t now_us_;
  const std::vector<Candidate> candidates_;
  SweepReport report_;
};

}  // namespace

SweepReport SweepSessions(const ResidentOptions& options, const SessionRegistry& registry,
                          int64_t now_us) {
  return Sweep(options, registry, now_us).Run();
}

int64_t SpillSessions(const SessionRegistry& registry, const std::function<bool()>& go_on) {
  int64_t num_spilled = 0;
  for (const Candidate& candidate : CandidatesOf(registry)) {
    if (!go_on()) break;
    if (candidate.bytes > 0 && TryWith(candidate, TrySpill)) ++num_spilled;
  }
  return num_spilled;
}

}  // namespace lethe
