// StopMatcher: finds stop strings in a stream of bytes and holds back what may become one.
//
// Equation:  none. A match is the earliest end of any stop string in the bytes; of several that end
//            at the same byte the longest counts.
// Shapes:    up to kStopStringsMax stop strings of 1 … kStopStringBytesMax bytes.
// Units:     bytes.
// Requires:  Append and Recompute: num_delivered <= the bytes given (LETHE_CHECK).
// Rejects:   Create: INVALID_ARGUMENT naming the field stop and the range.
// Effects:   Append returns the bytes that can no longer be part of a match; it holds back the
//            longest suffix that is a proper prefix of a stop string. After a match the text before
//            it has been returned, the match itself and all that follows never is. Every byte is
//            returned at most once. Finish returns what is held: call it on every way a generation
//            can end.
// Numerics:  none. The state is a function of the stop strings, the answer's bytes and how many of
//            them were delivered: after a Forget, Recompute makes it anew from the retained bytes.
//            O(1) per byte and stop string, amortised.
// Threads:   compatible.
#ifndef LETHE_SERVER_GENERATION_STOP_MATCHER_H_
#define LETHE_SERVER_GENERATION_STOP_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lethe {

inline constexpr size_t kStopStringsMax = 16;
inline constexpr size_t kStopStringBytesMax = 256;

class StopMatcher {
 public:
  struct Output {
    std::string bytes;                 // to be delivered now
    std::optional<size_t> stop_index;  // of the matched stop string, in the order given to Create
  };

  StopMatcher() = default;  // no stop strings: passes everything through
  static absl::StatusOr<StopMatcher> Create(absl::Span<const std::string> stop_strings);

  // After a match: returns no bytes and the same stop_index.
  Output Append(absl::string_view bytes);
  // The held bytes; empty after a match. The matcher then starts anew.
  std::string Finish();
  // Starts anew with the answer's retained bytes, of which the client has the first num_delivered.
  Output Recompute(absl::string_view retained_bytes, size_t num_delivered);

  size_t num_held_bytes() const { return held_.size(); }

 private:
  struct Pattern {
    std::string bytes;
    std::vector<size_t> fallback;  // [length]: longest proper border of bytes[0..i]
    size_t matched = 0;            // longest prefix that is a suffix of the stream
  };

  void Restart();

  std::vector<Pattern> patterns_;
  std::string held_;
  std::optional<size_t> stop_index_;
};

}  // namespace lethe

#endif  // LETHE_SERVER_GENERATION_STOP_MATCHER_H_
