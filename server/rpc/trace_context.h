// TraceContext: the trace that a client's call belongs to, as its `traceparent` names it (W3C Trace Context, level 1).
//
// Equation:  version "-" trace_id "-" parent_id "-" flags, in lower-case hexadecimal digits; a later version may go on
//            behind another "-".
// Shapes:    trace_id: 32 digits, parent_id: 16; not all zeros.
// Units:     none.
// Requires:  none.
// Rejects:   Parse: nothing for anything else. A call without a trace is served all the same.
// Effects:   none. Nothing but these digits comes from the client, so nothing else reaches the log.
// Numerics:  none.
// Threads:   a value.
#ifndef LETHE_SERVER_RPC_TRACE_CONTEXT_H_
#define LETHE_SERVER_RPC_TRACE_CONTEXT_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace lethe {

// Of version 00, and of what every later one begins with.
inline constexpr size_t kTraceparentSize = 55;

struct TraceContext {
  std::string trace_id;
  std::string parent_id;

  static std::optional<TraceContext> Parse(absl::string_view traceparent);
};

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_TRACE_CONTEXT_H_
