// ParseDecimal: the one text form of a u64 in our formats: decimal digits without a leading zero.
//
// Equation:  none.
// Shapes:    1 to 20 digits.
// Units:     none.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT: empty, a leading zero, anything but digits, 2^64 or more.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_AUDIT_LOG_DECIMAL_H_
#define LETHE_AUDIT_LOG_DECIMAL_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lethe::audit {

inline absl::StatusOr<uint64_t> ParseDecimal(absl::string_view text) {
  if (text.empty() || text.size() > 20 || (text.size() > 1 && text[0] == '0')) {
    return absl::InvalidArgumentError("want a decimal number without leading zero");
  }
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return absl::InvalidArgumentError("want decimal digits");
    const auto digit = static_cast<uint64_t>(c - '0');
    if (value > (UINT64_MAX - digit) / 10) {
      return absl::InvalidArgumentError("want a number below 2^64");
    }
    value = value * 10 + digit;
  }
  return value;
}

}  // namespace lethe::audit

#endif  // LETHE_AUDIT_LOG_DECIMAL_H_
