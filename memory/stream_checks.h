// CheckOption, CheckReads, CheckSnapshot: the checks that every streaming memory makes.
//
// Equation:  none.
// Shapes:    reads: any.
// Units:     none.
// Requires:  none.
// Rejects:   CheckOption: INVALID_ARGUMENT that names the option and its range. CheckReads:
//            OUT_OF_RANGE when a read is infinite or NaN; the message holds no value. SnapshotAs:
//            INVALID_ARGUMENT for a snapshot of another kind.
// Effects:   none.
// Numerics:  exact.
// Threads:   safe.
#ifndef LETHE_MEMORY_STREAM_CHECKS_H_
#define LETHE_MEMORY_STREAM_CHECKS_H_

#include <bit>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "memory/memory.h"

namespace lethe {

inline constexpr int64_t kHeadsMax = 64;
inline constexpr int64_t kDimMin = 8;
inline constexpr int64_t kDimMax = 4096;

struct OptionRange {
  int64_t min;
  int64_t max;
  int64_t multiple_of = 1;
};

inline absl::Status CheckOption(absl::string_view name, int64_t value, const OptionRange& range) {
  if (value >= range.min && value <= range.max && value % range.multiple_of == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(name, " must be a multiple of ", range.multiple_of,
                                                 " in [", range.min, ", ", range.max, "], got ",
                                                 value));
}

inline absl::Status CheckHeadOptions(int64_t num_heads, int64_t key_dim, int64_t value_dim) {
  if (auto status = CheckOption("heads", num_heads, {1, kHeadsMax}); !status.ok()) return status;
  if (auto status = CheckOption("key_dim", key_dim, {kDimMin, kDimMax, 8}); !status.ok()) {
    return status;
  }
  return CheckOption("value_dim", value_dim, {kDimMin, kDimMax, 8});
}

// The largest exponent is what infinities and NaNs share; integer arithmetic keeps the loop
// vectorised.
inline absl::Status CheckReads(absl::string_view kind, absl::Span<const float> reads) {
  constexpr uint32_t kExponent = 0x7f800000u;
  uint32_t num_bad = 0;
  for (float read : reads) {
    num_bad += static_cast<uint32_t>((std::bit_cast<uint32_t>(read) & kExponent) == kExponent);
  }
  if (num_bad == 0) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat(kind, " memory: the inputs took ", num_bad, " of its reads beyond f32"));
}

template <typename T>
absl::StatusOr<const T*> SnapshotAs(absl::string_view kind, const MemorySnapshot& snapshot) {
  const T* own = dynamic_cast<const T*>(&snapshot);
  if (own != nullptr) return own;
  return absl::InvalidArgumentError(absl::StrCat("snapshot is not of a ", kind, " memory"));
}

}  // namespace lethe

#endif  // LETHE_MEMORY_STREAM_CHECKS_H_
