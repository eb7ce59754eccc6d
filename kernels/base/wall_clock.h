// NowMicros, Rfc3339Now: the time of day, for people to read; nothing is decided by it.
//
// Equation:  none.
// Shapes:    none.
// Units:     NowMicros: microseconds since 1970. Rfc3339Now: UTC in whole seconds, as 2026-09-20T12:34:56Z.
// Requires:  none.
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_KERNELS_BASE_WALL_CLOCK_H_
#define LETHE_KERNELS_BASE_WALL_CLOCK_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>

namespace lethe {

inline int64_t NowMicros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

inline std::string Rfc3339Now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  return std::string(text.data(),
                     std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc));
}

}  // namespace lethe

#endif  // LETHE_KERNELS_BASE_WALL_CLOCK_H_
