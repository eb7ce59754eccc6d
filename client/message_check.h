// CheckText: every `string` field of a message is UTF-8, as protobuf demands.
//
// protobuf serialises other text all the same (with a line on standard error), and the server can
// only refuse it. Content (prompts, inputs, stop strings) is `bytes` and may be anything.
//
// Equation:  none.
// Shapes:    none.
// Units:     none.
// Requires:  none.
// Rejects:   INVALID_ARGUMENT that names the field by its path ("selection.subject").
// Effects:   none.
// Numerics:  O(size of the strings).
// Threads:   safe.
#ifndef LETHE_CLIENT_MESSAGE_CHECK_H_
#define LETHE_CLIENT_MESSAGE_CHECK_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace lethe::client {

bool IsUtf8(absl::string_view text);

absl::Status CheckText(const google::protobuf::Message& message);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_MESSAGE_CHECK_H_
