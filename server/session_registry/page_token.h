// PageToken: where a paged listing goes on, and what it must not have lost meanwhile.
//
// Equation:  none.
// Shapes:    text: 64 lower-case hex digits (scope 8 bytes, version 16 bytes, position 8 bytes).
// Units:     position: rank, sequence number or leaf index of the next row.
// Requires:  none.
// Rejects:   ParsePageToken: INVALID_ARGUMENT for anything that WritePageToken did not write for
//            this scope.
// Effects:   none. A token holds no content: the scope is a hash under a key of this process.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_SESSION_REGISTRY_PAGE_TOKEN_H_
#define LETHE_SERVER_SESSION_REGISTRY_PAGE_TOKEN_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lethe {

struct PageToken {
  // What the listing's rows depend on; the caller compares it with the present one.
  uint64_t epoch = 0;
  uint64_t length = 0;
  uint64_t position = 0;
};

// `scope` names the listing and its filters ("ListInputs", session, subject).
std::string WritePageToken(absl::string_view scope, const PageToken& token);
absl::StatusOr<PageToken> ParsePageToken(absl::string_view scope, absl::string_view text);

// Rows of a page: 0 = default_size, above max_size = max_size; negative: INVALID_ARGUMENT.
absl::StatusOr<int64_t> PageSize(int64_t requested, int64_t default_size, int64_t max_size);

// ABORTED, reason HISTORY_CHANGED.
absl::Status HistoryChangedError();

}  // namespace lethe

#endif  // LETHE_SERVER_SESSION_REGISTRY_PAGE_TOKEN_H_
