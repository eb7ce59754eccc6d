// DecodeAnswer: the answer to a repeated request, from what the session store kept of it.
//
// Equation:  DecodeAnswer(a.Encode(k)) answers as `a` did, after DropOpenings where k is false.
// Shapes:    StoredAnswer::Encode.
// Units:     none.
// Requires:  `records` are those of the session, with their places in the log.
// Rejects:   DATA_LOSS for bytes that no Encode writes.
// Effects:   none.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_RECOVERY_STORED_ANSWERS_H_
#define LETHE_SERVER_RECOVERY_STORED_ANSWERS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "server/session_registry/request_table.h"
#include "server/session_registry/session_entry.h"

namespace lethe {

absl::StatusOr<std::shared_ptr<StoredAnswer>> DecodeAnswer(absl::string_view bytes,
                                                           absl::Span<const RecordRef> records);

}  // namespace lethe

#endif  // LETHE_SERVER_RECOVERY_STORED_ANSWERS_H_
