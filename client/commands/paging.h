// ListAllInputs: every retained input of a session, over all pages.
//
// Equation:  none.
// Shapes:    inputs in rank order.
// Units:     none.
// Requires:  none.
// Rejects:   the server's errors; ABORTED when the session was changed by a Forget between two pages.
// Effects:   none.
// Numerics:  none.
// Threads:   as Client.
#ifndef LETHE_CLIENT_COMMANDS_PAGING_H_
#define LETHE_CLIENT_COMMANDS_PAGING_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/client.h"

namespace lethe::client {

struct InputQuery {
  std::string session_id;
  std::string subject;           // "" = all
  bool include_content = false;  // bytes and vocab_ids too
};

absl::StatusOr<std::vector<v1::Input>> ListAllInputs(Client& client, const InputQuery& query);

}  // namespace lethe::client

#endif  // LETHE_CLIENT_COMMANDS_PAGING_H_
