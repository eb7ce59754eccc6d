// NumberText: a number as an error message shows it: integers as integers (1048576, never
// 1.04858e+06), other values in the fewest digits that read back as the same double.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   none.
// Effects:   none.
// Numerics:  exact: reading the text gives the value again (-0 as 0).
// Threads:   safe.
#ifndef LETHE_KERNELS_BASE_NUMBER_TEXT_H_
#define LETHE_KERNELS_BASE_NUMBER_TEXT_H_

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace lethe {

inline std::string NumberText(double value) {
  constexpr double kExactIntegersMax = 0x1.0p53;
  if (std::fabs(value) <= kExactIntegersMax && value == std::trunc(value)) {
    return std::to_string(static_cast<int64_t>(value));
  }
  std::array<char, 32> text{};
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value);
  return std::string(text.data(), result.ptr);
}

}  // namespace lethe

#endif  // LETHE_KERNELS_BASE_NUMBER_TEXT_H_
