#include "server/session_keeper.h"

#include "absl/strings/str_cat.h"

#include "server/diagnostics/log.h"
#include "server/recovery/recovery.h"

namespace lethe {
namespace {

constexpr std::chrono::milliseconds kBetweenChecks{1};
constexpr std::chrono::milliseconds kBetweenSweeps{1000};
constexpr std::chrono::minutes kBetweenWords{1};

}  // namespace

SessionKeeper::SessionKeeper(const ResidentOptions& options, const SessionRegistry* sessions)
    : options_(options), sessions_(sessions), thread_([this] { Run(); }) {}

SessionKeeper::~SessionKeeper() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool SessionKeeper::Wait(std::chrono::milliseconds time) {
  std::unique_lock<std::mutex> lock(mutex_);
  return !changed_.wait_for(lock, time, [this] { return ending_; });
}

void SessionKeeper::Run() {
  CheckStoredSessions(*sessions_, [this] { return Wait(kBetweenChecks); });
  while (Wait(kBetweenSweeps)) Count(SweepSessions(options_, *sessions_, NowSteadyMicros()));
}

void SessionKeeper::Count(const SweepReport& report) {
  left_.num_idle += report.num_idle;
  left_.num_over += report.num_over;
  left_.num_spilled += report.num_spilled;
  left_.num_unspilled += report.num_unspilled;
  const auto now = std::chrono::steady_clock::now();
  const bool any = left_.num_idle + left_.num_over + left_.num_unspilled > 0;
  if (!any || now - last_word_ < kBetweenWords) return;
  LogInfo(absl::StrCat(
      left_.num_idle, " sessions left memory because nobody used them, ", left_.num_over,
      " for --resident-mib; ", report.num_resident, " are in memory and hold ",
      report.resident_bytes >> 20, " MiB; snapshots of ", left_.num_spilled, " were stored, of ",
      left_.num_unspilled, " dropped, and take ", report.snapshot_bytes >> 20, " MiB"));
  left_ = SweepReport();
  last_word_ = now;
}

}  // namespace lethe
