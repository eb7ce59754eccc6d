#include "memory/svdd/sv_edit.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/fault.h"
#include "kernels/base/status_macros.h"

namespace lethe::svdd {
namespace {

absl::Status CheckRanks(const char* name, absl::Span<const int64_t> ranks, int64_t limit) {
  int64_t least = 0;
  for (const int64_t rank : ranks) {
    if (rank < least || rank >= limit) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ascending ranks below ", limit, " are expected"));
    }
    least = rank + 1;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Successor>> SuccessorsOf(absl::Span<const int64_t> removed,
                                                    absl::Span<const int64_t> replaced,
                                                    int64_t num_tokens, int64_t num_present) {
  LETHE_RETURN_IF_ERROR(CheckRanks("removed", removed, num_present));
  LETHE_RETURN_IF_ERROR(CheckRanks("replaced", replaced, num_tokens));
  std::vector<Successor> successors;
  size_t next_removed = 0;
  size_t next_replaced = 0;
  for (int64_t rank = 0; rank < num_tokens; ++rank) {
    const bool goes = next_removed < removed.size() && removed[next_removed] == rank;
    const bool is_new = next_replaced < replaced.size() && replaced[next_replaced] == rank;
    if (goes && is_new) {
      return absl::InvalidArgumentError("replaced: a rank is removed too");
    }
    if (goes) {
      ++next_removed;
      continue;
    }
    successors.push_back({rank, is_new ? static_cast<int64_t>(next_replaced++) : Successor::kKept});
  }
  if (FaultActive(Fault::kKeyAddedAtEnd)) {
    std::stable_partition(successors.begin(), successors.end(), [](const Successor& successor) {
      return successor.new_key == Successor::kKept;
    });
  }
  return successors;
}

int64_t NumRetained(absl::Span<const Successor> successors, int64_t end) {
  return std::count_if(successors.begin(), successors.end(),
                       [end](const Successor& successor) { return successor.rank < end; });
}

}  // namespace lethe::svdd
