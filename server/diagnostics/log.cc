#include "server/diagnostics/log.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <ctime>

#include "absl/strings/str_cat.h"

namespace lethe {
namespace {

std::atomic<LogLevel> max_level{LogLevel::kInfo};

void Write(LogLevel level, char letter, absl::string_view text) {
  if (level > max_level.load(std::memory_order_relaxed)) return;
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> stamp{};
  const size_t size = std::strftime(stamp.data(), stamp.size(), "%Y-%m-%dT%H:%M:%SZ ", &utc);
  const std::string line =
      absl::StrCat(absl::string_view(stamp.data(), size), std::string(1, letter), " ", text, "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void SetLogLevel(LogLevel level) { max_level.store(level, std::memory_order_relaxed); }
void LogError(absl::string_view text) { Write(LogLevel::kError, 'E', text); }
void LogInfo(absl::string_view text) { Write(LogLevel::kInfo, 'I', text); }
void LogDebug(absl::string_view text) { Write(LogLevel::kDebug, 'D', text); }

}  // namespace lethe
