// CheckPartIds, PartId, OfWhole, EnsureRequestId: the request ids of calls, and of those that one long input is cut into.
//
// Equation:  none.
// Shapes:    the calls of a request ID in several parts are ID.0, ID.1, …; in one part, ID itself.
// Units:     characters.
// Requires:  num_parts at least 1, part below it.
// Rejects:   CheckPartIds: INVALID_ARGUMENT that names --request-id and how long it may be.
// Effects:   EnsureRequestId draws an id where there is none: a call whose answer is lost can then be repeated.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_CLIENT_COMMANDS_REQUEST_PARTS_H_
#define LETHE_CLIENT_COMMANDS_REQUEST_PARTS_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lethe::client {

// `input` is what the error calls it: "text".
absl::Status CheckPartIds(const std::string& request_id, size_t num_parts, absl::string_view input);

// "" when request_id is.
std::string PartId(const std::string& request_id, size_t part, size_t num_parts);

// A part's status, in which request_id stands where its own id stood: a repeat is one of the whole command.
absl::Status OfWhole(absl::Status status, const std::string& request_id);

void EnsureRequestId(std::string* request_id);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_REQUEST_PARTS_H_
