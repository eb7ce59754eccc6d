// Successor, SuccessorsOf, NumRetained: which token before an SvEdit stands at each rank after it.
//
// Equation:  the tokens below num_tokens in rank order without the removed ones; a replaced one
//            keeps its place.
// Shapes:    Edit: [num_tokens - removed ones].
// Units:     ranks.
// Requires:  0 <= num_tokens <= num_present.
// Rejects:   INVALID_ARGUMENT: removed not ascending ranks below num_present; replaced not ascending
//            ranks below num_tokens; a rank in both.
// Effects:   none.
// Numerics:  exact. O(num_tokens). With Fault::kKeyAddedAtEnd replaced tokens come last.
// Threads:   safe.
#ifndef LETHE_MEMORY_SVDD_SV_EDIT_H_
#define LETHE_MEMORY_SVDD_SV_EDIT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lethe::svdd {

struct Successor {
  static constexpr int64_t kKept = -1;
  int64_t rank = 0;         // before
  int64_t new_key = kKept;  // index in `replaced`
};

// num_present: tokens in some head, of which those from num_tokens on are dropped.
absl::StatusOr<std::vector<Successor>> SuccessorsOf(absl::Span<const int64_t> removed,
                                                    absl::Span<const int64_t> replaced,
                                                    int64_t num_tokens, int64_t num_present);

// How many of the tokens below `end` before the edit are left.
int64_t NumRetained(absl::Span<const Successor> successors, int64_t end);

}  // namespace lethe::svdd

#endif  // LETHE_MEMORY_SVDD_SV_EDIT_H_
