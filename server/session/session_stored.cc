// Session: from what a store holds of it.
#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/session/evaluation.h"
#include "server/session/session.h"

namespace lethe {

absl::Status Session::TakeInputs(Inputs inputs, uint64_t next_token_id) {
  const int64_t vocab_size = model_->config().vocab_size;
  const int64_t count = inputs.size();
  bool fits =
      count <= max_tokens() && (count == 0 || inputs.at(count - 1).token_id < next_token_id);
  for (int64_t rank = 0; rank < count && fits; ++rank) {
    const int32_t vocab_id = inputs.at(rank).vocab_id;
    fits = vocab_id >= 0 && vocab_id < vocab_size;
    if (fits) ++repetition_counts_[static_cast<size_t>(vocab_id)];
  }
  if (!fits) return absl::DataLossError("stored inputs: no history of this model");
  inputs_ = std::move(inputs);
  next_token_id_ = next_token_id;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Session>> Session::Rebuild(std::shared_ptr<const Model> model,
                                                          const SessionOptions& options,
                                                          Inputs inputs, uint64_t next_token_id) {
  return Resume(std::move(model), options, std::move(inputs), next_token_id, {});
}

absl::StatusOr<std::unique_ptr<Session>> Session::Resume(std::shared_ptr<const Model> model,
                                                         const SessionOptions& options,
                                                         Inputs inputs, uint64_t next_token_id,
                                                         absl::Span<const std::string> snapshots) {
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Create(std::move(model), options));
  LETHE_RETURN_IF_ERROR(session->TakeInputs(std::move(inputs), next_token_id));
  const int64_t head = session->num_tokens();
  std::shared_ptr<const ModelSnapshot> last;
  for (const std::string& bytes : snapshots) {
    LETHE_ASSIGN_OR_RETURN(last, session->state_->ReadSnapshot(bytes));
    if (last->num_tokens() > head) return absl::DataLossError("stored snapshot: of more inputs");
    session->ladder_.Insert(last);
  }
  if (last != nullptr && !session->state_->Restore(*last).ok()) {
    return absl::DataLossError("stored snapshot: of another state");
  }
  const int64_t first = last == nullptr ? 0 : last->num_tokens();
  LETHE_RETURN_IF_ERROR(
      EvaluateRange(session->inputs_, first, head, head, session->state_.get(), &session->ladder_));
  session->ladder_.Prune(head);
  return session;
}

int64_t Session::resumable_rank() const {
  if (!state_->writes_snapshots()) return 0;
  return ladder_.NewestCompleteAtOrBefore(num_tokens())->num_tokens();
}

std::vector<SnapshotBytes> Session::SnapshotsBehind(int64_t rank, int max_count) const {
  if (!state_->writes_snapshots()) return {};
  std::vector<std::shared_ptr<const ModelSnapshot>> chosen;  // the last first
  for (int64_t bound = num_tokens(); static_cast<int>(chosen.size()) < max_count;) {
    std::shared_ptr<const ModelSnapshot> next = ladder_.NewestCompleteAtOrBefore(bound);
    if (next == nullptr || next->num_tokens() <= rank) break;
    bound = num_tokens() - std::max<int64_t>(2 * (num_tokens() - next->num_tokens()), 1);
    chosen.push_back(std::move(next));
    if (bound <= rank) break;
  }
  std::vector<SnapshotBytes> written;
  int64_t from = rank;
  for (auto it = chosen.rbegin(); it != chosen.rend(); ++it) {
    written.push_back({(*it)->num_tokens(), from, state_->WriteSnapshot(**it, from)});
    from = (*it)->num_tokens();
  }
  return written;
}

}  // namespace lethe
