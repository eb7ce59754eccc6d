// ErrorInfo, WithErrorInfo: the machine-readable cause that travels inside an absl::Status.
//
// Any layer of the server attaches it where the cause is known; server/rpc turns it into the
// ErrorInfo detail of proto/lethe/v1/types.proto. A status without one gets its code's name as the
// reason.
//
// Equation:  none.
// Shapes:    reason: UPPER_SNAKE_CASE, at most 63 characters; metadata: (key, value) pairs.
// Units:     none.
// Requires:  nothing in reason, metadata or message is content (text, vocab_ids, labels, keys).
// Rejects:   none.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_ERROR_ERROR_INFO_H_
#define LETHE_SERVER_ERROR_ERROR_INFO_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lethe {

struct ErrorInfo {
  std::string reason;
  std::vector<std::pair<std::string, std::string>> metadata;
};

// The same status with `info` in place of any it carried. OK stays OK.
absl::Status WithErrorInfo(absl::Status status, const ErrorInfo& info);

// The attached info, or nothing.
std::optional<ErrorInfo> GetErrorInfo(const absl::Status& status);

// The attached info, or its code's name as the reason; `status` is an error.
ErrorInfo ErrorInfoOf(const absl::Status& status);

// `status` unchanged when it carries an info already (the innermost layer knows best), else with
// this reason.
absl::Status WithDefaultReason(absl::Status status, absl::string_view reason);

// INVALID_ARGUMENT "<field>: want <accepted>", reason INVALID_FIELD, metadata field and accepted.
absl::Status InvalidFieldError(absl::string_view field, absl::string_view accepted);

// UPPER_SNAKE_CASE name of a code, for example "INVALID_ARGUMENT".
std::string StatusCodeReason(absl::StatusCode code);

}  // namespace lethe

#endif  // LETHE_SERVER_ERROR_ERROR_INFO_H_
