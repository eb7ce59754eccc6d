// ListInputRows: the pages of ListInputs.
//
// Equation:  none.
// Shapes:    rows in rank order.
// Units:     none.
// Requires:  session_id and subject of the request are checked.
// Rejects:   INVALID_ARGUMENT for page_size and page_token; ABORTED, reason HISTORY_CHANGED, after
//            a Forget between two pages, reason SESSION_DELETED.
// Effects:   takes the session's lock for one page.
// Numerics:  none.
// Threads:   safe.
#ifndef LETHE_SERVER_RPC_INPUT_LISTING_H_
#define LETHE_SERVER_RPC_INPUT_LISTING_H_

#include "absl/status/status.h"

#include "lethe/v1/session.pb.h"
#include "server/session_registry/session_entry.h"

namespace lethe {

absl::Status ListInputRows(const v1::ListInputsRequest& request, SessionEntry* entry,
                           v1::ListInputsResponse* response);

}  // namespace lethe

#endif  // LETHE_SERVER_RPC_INPUT_LISTING_H_
