// ParseIds, ParseRange, ParseVocabIds: lists of ids as people type them; FormatRanges: as they read them.
//
//   "1,2,5-9"  ids 1 and 2, and the range of the ids 5 to 9, both ends included
//   "5:10"     the half-open range 5 <= id < 10
//
// Equation:  none.
// Shapes:    none.
// Units:     token_ids and vocab_ids.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT for an empty list or item, a sign, a letter, a number above 2^64 - 2 (or
//            2^31 - 1 for vocab_ids), 5-4 and 5:5.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_ID_RANGES_H_
#define LETHE_CLIENT_ID_RANGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "lethe/v1/forgetting.pb.h"
#include "lethe/v1/types.pb.h"

namespace lethe::client {

// `option` is what the errors name: "--ids".
absl::StatusOr<v1::TokenSelection> ParseIds(absl::string_view option, absl::string_view text);
absl::StatusOr<v1::TokenRange> ParseRange(absl::string_view option, absl::string_view text);
absl::StatusOr<std::vector<int32_t>> ParseVocabIds(absl::string_view option,
                                                   absl::string_view text);

// "17-58, 60" with both ends included, "none" for no range; neighbouring ranges are joined.
std::string FormatRanges(const google::protobuf::RepeatedPtrField<v1::TokenRange>& ranges);
std::string FormatRange(const v1::TokenRange& range);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_ID_RANGES_H_
