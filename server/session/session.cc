#include "server/session/session.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/session/evaluation.h"
#include "server/session/sv_heads_of.h"

namespace lethe {
namespace {

void Wipe(std::vector<float>* values) {
  if (!values->empty()) explicit_bzero(values->data(), values->size() * sizeof(float));
}

}  // namespace

Session::Session(std::shared_ptr<const Model> model, const SessionOptions& options,
                 std::unique_ptr<ModelState> state)
    : model_(std::move(model)),
      options_(options),
      state_(std::move(state)),
      repetition_counts_(static_cast<size_t>(model_->config().vocab_size)),
      logits_(static_cast<size_t>(model_->config().vocab_size)) {}

Session::~Session() { Wipe(&logits_); }

absl::StatusOr<std::unique_ptr<Session>> Session::Create(std::shared_ptr<const Model> model,
                                                         const SessionOptions& options) {
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<ModelState> state,
                         ModelState::Create(model, options.memory, options.stored_input_bytes));
  std::unique_ptr<Session> session(new Session(std::move(model), options, std::move(state)));
  session->ladder_.Insert(session->state_->Snapshot());
  return session;
}

int64_t Session::max_tokens() const { return model_->config().max_tokens; }

absl::Status Session::CheckAppend(absl::Span<const int32_t> vocab_ids,
                                  absl::string_view subject) const {
  LETHE_RETURN_IF_ERROR(lost_);
  if (vocab_ids.empty()) return absl::InvalidArgumentError("vocab_ids must not be empty");
  if (subject.size() > kMaxSubjectBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("subject must be at most ", kMaxSubjectBytes, " bytes"));
  }
  const int64_t vocab_size = model_->config().vocab_size;
  for (size_t i = 0; i < vocab_ids.size(); ++i) {
    if (vocab_ids[i] < 0 || vocab_ids[i] >= vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("vocab_ids[", i, "] must be in 0 ... ", vocab_size - 1));
    }
  }
  const int64_t budget = max_tokens() - num_tokens();
  if (static_cast<int64_t>(vocab_ids.size()) > budget) {
    return absl::ResourceExhaustedError(absl::StrCat("vocab_ids: got ", vocab_ids.size(),
                                                     " tokens, the session can take ", budget,
                                                     " more (max_tokens ", max_tokens(), ")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> Session::Append(absl::Span<const int32_t> vocab_ids,
                                                      absl::string_view subject, InputKind kind) {
  if (kind == InputKind::kGenerated) {
    return absl::InvalidArgumentError("kind must be kPrompt or kAppended");
  }
  LETHE_RETURN_IF_ERROR(CheckAppend(vocab_ids, subject));
  return AppendChecked(vocab_ids, subject, kind);
}

absl::StatusOr<uint64_t> Session::AppendGenerated(int32_t vocab_id, absl::string_view subject) {
  const absl::Span<const int32_t> vocab_ids = absl::MakeConstSpan(&vocab_id, 1);
  LETHE_RETURN_IF_ERROR(CheckAppend(vocab_ids, subject));
  LETHE_ASSIGN_OR_RETURN(const std::vector<uint64_t> token_ids,
                         AppendChecked(vocab_ids, subject, InputKind::kGenerated));
  return token_ids[0];
}

absl::StatusOr<std::vector<uint64_t>> Session::AppendChecked(absl::Span<const int32_t> vocab_ids,
                                                             absl::string_view subject,
                                                             InputKind kind) {
  const int64_t first = num_tokens();
  std::vector<uint64_t> token_ids;
  for (const int32_t vocab_id : vocab_ids) {
    token_ids.push_back(next_token_id_ + token_ids.size());
    inputs_.Append(token_ids.back(), vocab_id, kind, subject);
  }
  const int64_t head = num_tokens();
  const absl::Status status = EvaluateRange(inputs_, first, head, head, state_.get(), &ladder_);
  if (!status.ok()) {
    RollBackTo(first);
    return status;
  }
  ladder_.Prune(head);
  for (const int32_t vocab_id : vocab_ids) ++repetition_counts_[static_cast<size_t>(vocab_id)];
  next_token_id_ += vocab_ids.size();
  ++generation_;
  InvalidateLogits();
  return token_ids;
}

// Evaluates the tokens before `rank` again, where needed. After a replay not every one of them has
// been read before, so a number beyond f32 may show only here: then the session is lost.
void Session::RollBackTo(int64_t rank) {
  inputs_.Truncate(rank);
  ladder_.DropAfter(rank);
  const std::shared_ptr<const ModelSnapshot> snapshot = ladder_.NewestCompleteAtOrBefore(rank);
  LETHE_CHECK(snapshot != nullptr);
  absl::Status status = state_->Restore(*snapshot);
  if (status.ok()) {
    status = EvaluateRange(inputs_, snapshot->num_tokens(), rank, rank, state_.get(), &ladder_);
  }
  if (!status.ok()) lost_ = absl::DataLossError("the session's state cannot be computed");
}

void Session::InvalidateLogits() {
  Wipe(&logits_);
  logits_valid_ = false;
}

absl::Span<const float> Session::logits() {
  if (num_tokens() == 0) return {};
  if (!logits_valid_) {
    LETHE_CHECK(state_->Logits(absl::MakeSpan(logits_)).ok());
    logits_valid_ = true;
  }
  return logits_;
}

absl::StatusOr<std::vector<float>> Session::Score(absl::Span<const int32_t> vocab_ids) const {
  LETHE_RETURN_IF_ERROR(CheckAppend(vocab_ids, ""));
  const std::unique_ptr<ModelState> state = state_->Clone();
  std::vector<float> logits(vocab_ids.size() * static_cast<size_t>(model_->config().vocab_size));
  LETHE_RETURN_IF_ERROR(state->EvaluateWithLogits(vocab_ids, absl::MakeSpan(logits)));
  return logits;
}

std::unique_ptr<Session> Session::Fork() const {
  std::unique_ptr<Session> fork(new Session(model_, options_, state_->Clone()));
  fork->ladder_ = ladder_;
  fork->lost_ = lost_;
  fork->inputs_ = Inputs(inputs_);
  fork->repetition_counts_ = repetition_counts_;
  fork->next_token_id_ = next_token_id_ | kForkTokenIdBit;
  fork->shared_ids_end_ = shared_ids_end_ != 0 ? shared_ids_end_ : next_token_id_;
  return fork;
}

audit::StateParts Session::StateParts() const { return DigestPartsOf(*state_, repetition_counts_); }

std::vector<SvHead> Session::SvHeads() const { return SvHeadsOf(*state_); }

int64_t Session::num_support_vectors() const {
  int64_t count = 0;
  for (const SvHead& head : SvHeads()) {
    for (const svdd::Partition place : head.solution->classes) {
      if (place != svdd::Partition::kReserve) ++count;
    }
  }
  return count;
}

std::vector<int32_t> Session::vocab_ids() const {
  std::vector<int32_t> vocab_ids;
  for (int64_t rank = 0; rank < num_tokens(); ++rank) {
    vocab_ids.push_back(inputs_.at(rank).vocab_id);
  }
  return vocab_ids;
}

SessionBytes Session::bytes() const {
  return {state_->state_bytes(), ladder_.state_bytes(), inputs_.state_bytes(),
          state_->stored_input_bytes()};
}

}  // namespace lethe
