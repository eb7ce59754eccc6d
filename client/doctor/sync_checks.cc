#include "client/doctor/sync_checks.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_format.h"
#include <unistd.h>

namespace lethe::client {
namespace {

namespace fs = std::filesystem;

constexpr char kSyncCheck[] = "sync speed";
// An appended text waits for one sync, a Forget for about ten: more than a second then.
constexpr double kSlowMs = 100;
// Less than any device needs: what answers so soon has not written.
constexpr double kInstantMs = 0.01;

// Milliseconds of each sync; negative when the file could not be written.
std::array<double, kNumSyncs> MeasureSyncs(int descriptor) {
  std::array<double, kNumSyncs> times{};
  const std::array<char, 4096> block{};
  for (double& time : times) {
    const auto start = std::chrono::steady_clock::now();
    const bool done =
        write(descriptor, block.data(), block.size()) == static_cast<ssize_t>(block.size()) &&
        fdatasync(descriptor) == 0;
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    time = done ? spent.count() : -1;
  }
  return times;
}

}  // namespace

Finding JudgeSync(double median_ms) {
  Finding finding{Verdict::kGood, kSyncCheck, absl::StrFormat("%.2f ms a sync", median_ms), ""};
  if (median_ms > kSlowMs) {
    finding.verdict = Verdict::kWarning;
    finding.found += ": every appended text waits for one, every Forget for several";
    finding.remedy = "put the data directory on a faster disk, or one that is less busy";
  } else if (median_ms < kInstantMs) {
    finding.verdict = Verdict::kNote;
    finding.found += ": too short for any device, so syncs may be switched off beneath";
    finding.remedy =
        "with a cache that is not backed by a battery, a loss of power takes what was answered";
  }
  return finding;
}

Findings CheckSyncSpeed(const std::string& directory) {
  std::error_code error;
  fs::path path = fs::absolute(directory, error);
  while (!fs::exists(path, error) && path.has_relative_path()) path = path.parent_path();
  std::string name = (path / "lethe-doctor-XXXXXX").string();
  const int descriptor = mkstemp(name.data());
  if (descriptor < 0) {
    return {{Verdict::kNote, kSyncCheck, "the directory cannot be written by this user",
             "run lethe doctor as the server's user"}};
  }
  std::array<double, kNumSyncs> times = MeasureSyncs(descriptor);
  close(descriptor);
  unlink(name.c_str());
  std::sort(times.begin(), times.end());
  if (times.front() < 0) {
    return {{Verdict::kError, kSyncCheck, "a block could not be written and synced",
             "look at the disk (dmesg, smartctl)"}};
  }
  return {JudgeSync(times[times.size() / 2])};
}

}  // namespace lethe::client
