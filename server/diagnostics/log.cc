#include "server/diagnostics/log.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <ctime>

#include "absl/strings/str_cat.h"
#include <nlohmann/json.hpp>

namespace lethe {
namespace {

std::atomic<LogLevel> max_level{LogLevel::kInfo};
std::atomic<LogFormat> log_format{LogFormat::kText};

struct LevelName {
  char letter;
  const char* word;
};

LevelName NameOf(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return {'E', "error"};
    case LogLevel::kInfo:
      return {'I', "info"};
    case LogLevel::kDebug:
      break;
  }
  return {'D', "debug"};
}

std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> stamp{};
  const size_t size = std::strftime(stamp.data(), stamp.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return std::string(stamp.data(), size);
}

std::string JsonLine(LogLevel level, absl::string_view text, const LogFields& fields) {
  nlohmann::ordered_json line = {
      {"time", Now()}, {"level", NameOf(level).word}, {"message", std::string(text)}};
  for (const auto& [name, value] : fields) line[std::string(name)] = value;
  // A path in a message may be any bytes.
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void Write(LogLevel level, absl::string_view text, const LogFields& fields) {
  if (level > max_level.load(std::memory_order_relaxed)) return;
  const std::string line =
      log_format.load(std::memory_order_relaxed) == LogFormat::kJson
          ? JsonLine(level, text, fields)
          : absl::StrCat(Now(), " ", std::string(1, NameOf(level).letter), " ", text, "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void SetLogLevel(LogLevel level) { max_level.store(level, std::memory_order_relaxed); }
void SetLogFormat(LogFormat format) { log_format.store(format, std::memory_order_relaxed); }
void LogError(absl::string_view text, const LogFields& fields) {
  Write(LogLevel::kError, text, fields);
}
void LogInfo(absl::string_view text) { Write(LogLevel::kInfo, text, {}); }
void LogDebug(absl::string_view text, const LogFields& fields) {
  Write(LogLevel::kDebug, text, fields);
}

}  // namespace lethe
