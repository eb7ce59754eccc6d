#include "server/rpc/input_listing.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/session_registry/page_token.h"

namespace lethe {
namespace {

v1::InputKind ToMessage(InputKind kind) {
  switch (kind) {
    case InputKind::kPrompt:
      return v1::INPUT_KIND_PROMPT;
    case InputKind::kAppended:
      return v1::INPUT_KIND_APPENDED;
    case InputKind::kGenerated:
      break;
  }
  return v1::INPUT_KIND_GENERATED;
}

void SetInput(const AnySession& session, const Model* model, int64_t rank, bool include_content,
              v1::Input* message) {
  const Input& input = session.inputs().at(rank);
  message->set_token_id(input.token_id);
  message->set_rank(rank);
  message->set_kind(ToMessage(input.kind));
  message->set_subject(std::string(session.inputs().subject(rank)));
  message->set_derived(input.derived_from_forgotten);
  if (!include_content || model == nullptr) return;
  message->set_vocab_id(input.vocab_id);
  message->set_text(model->TokenBytes(input.vocab_id));
}

// The ranks of a page, from the first one at or after `begin`, and one more when there are more.
std::vector<int64_t> PageRanks(const Inputs& inputs, const std::string& subject, int64_t begin,
                               int64_t size) {
  std::vector<int64_t> ranks;
  if (subject.empty()) {
    const int64_t end = std::min(inputs.size(), begin + size + 1);
    for (int64_t rank = begin; rank < end; ++rank) ranks.push_back(rank);
    return ranks;
  }
  const std::vector<int64_t> all = inputs.RanksOfSubject(subject);
  const auto first = std::lower_bound(all.begin(), all.end(), begin);
  const auto count = std::min<std::ptrdiff_t>(all.end() - first, size + 1);
  return {first, first + count};
}

}  // namespace

absl::Status ListInputRows(const v1::ListInputsRequest& request, SessionEntry* entry,
                           v1::ListInputsResponse* response) {
  LETHE_ASSIGN_OR_RETURN(const int64_t size, PageSize(request.page_size(), 1000, 65536));
  const std::string scope = absl::StrCat("ListInputs ", entry->session_id, " ", request.subject());
  FairMutexLock lock(&entry->mutex);
  LETHE_ASSIGN_OR_RETURN(const AnySession* session, entry->LiveSession());
  int64_t begin = 0;
  if (!request.page_token().empty()) {
    LETHE_ASSIGN_OR_RETURN(const PageToken token, ParsePageToken(scope, request.page_token()));
    if (token.epoch != entry->mark.epoch) return HistoryChangedError();
    begin = static_cast<int64_t>(token.position);
  }
  std::vector<int64_t> ranks = PageRanks(session->inputs(), request.subject(), begin, size);
  if (static_cast<int64_t>(ranks.size()) > size) {
    response->set_next_page_token(
        WritePageToken(scope, {entry->mark.epoch, 0, static_cast<uint64_t>(ranks.back())}));
    ranks.pop_back();
  }
  for (const int64_t rank : ranks) {
    SetInput(*session, entry->model.get(), rank, request.include_content(), response->add_inputs());
  }
  response->set_num_inputs(session->num_tokens());
  return absl::OkStatus();
}

}  // namespace lethe
