#include "client/commands/paging.h"

#include "kernels/base/status_macros.h"

namespace lethe::client {
namespace {

// The server's maximum.
constexpr int kInputsPerPage = 65536;

}  // namespace

absl::StatusOr<std::vector<v1::Input>> ListAllInputs(Client& client, const InputQuery& query) {
  std::vector<v1::Input> inputs;
  v1::ListInputsRequest request;
  request.set_session_id(query.session_id);
  request.set_subject(query.subject);
  request.set_include_content(query.include_content);
  request.set_page_size(kInputsPerPage);
  do {
    LETHE_ASSIGN_OR_RETURN(v1::ListInputsResponse response, client.ListInputs(request));
    for (v1::Input& input : *response.mutable_inputs()) {
      inputs.push_back(std::move(input));
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return inputs;
}

}  // namespace lethe::client
