#include "server/vector_session/vector_session.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/byte_io.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/model/model.h"
#include "server/model/numerics_id.h"
#include "server/model/support_state.h"
#include "server/session/forget_selection.h"
#include "server/vector_session/vector_rows.h"

namespace lethe {
namespace {

// More leaves than these are taken out by building the tree behind the first again.
constexpr size_t kLeavesOneByOne = 16;

absl::string_view BytesOf(absl::Span<const double> numbers) {
  return absl::string_view(reinterpret_cast<const char*>(numbers.data()),
                           numbers.size() * sizeof(double));
}

}  // namespace

struct VectorSession::Removed {
  std::vector<int64_t> ranks;
  WipedVector<double> keys;
  WipedVector<double> values;
  Inputs inputs;  // all, before
};

class VectorSession::StagedRemoval final : public AnyStagedForget {
 public:
  StagedRemoval(VectorSession* session, Removed removed, ForgetResult result, bool eviction)
      : session_(session),
        removed_(std::move(removed)),
        result_(std::move(result)),
        eviction_(eviction) {
    session_->staged_ = true;
  }
  ~StagedRemoval() override {
    if (session_ == nullptr) return;
    session_->PutBack(removed_);
    session_->staged_ = false;
  }
  const ForgetResult& result() const override { return result_; }
  std::vector<SvHead> SvHeads() const override { return session_->SvHeads(); }
  const Inputs& inputs() const override { return session_->inputs(); }

 private:
  friend class VectorSession;
  VectorSession* session_;  // null: committed
  Removed removed_;
  ForgetResult result_;
  bool eviction_;
};

audit::Sha256Digest ModelDigest(const VectorOptions& options) {
  const svdd::Params& params = options.params;
  return audit::VectorModelDigest({static_cast<uint64_t>(params.key_dim),
                                   static_cast<uint64_t>(options.value_dim), params.sigma,
                                   params.box_mass, params.ridge});
}

VectorSession::VectorSession(const VectorOptions& options)
    : options_(options), solver_(std::make_unique<svdd::IncrementalSolver>(options.params)) {}

absl::StatusOr<std::unique_ptr<VectorSession>> VectorSession::Rebuild(const VectorOptions& options,
                                                                      StoredVectors stored) {
  const int64_t count = stored.inputs.size();
  auto session = std::make_unique<VectorSession>(options);
  const bool fits = static_cast<int64_t>(stored.keys.size()) == count * options.params.key_dim &&
                    static_cast<int64_t>(stored.values.size()) == count * options.value_dim &&
                    (count == 0 || stored.inputs.at(count - 1).token_id < stored.next_token_id);
  if (!fits || (count > 0 && !session->solver_->AddSeveral(stored.keys).ok())) {
    return absl::DataLossError("stored inputs: no history of this vector session");
  }
  session->keys_ = std::move(stored.keys);
  session->values_ = std::move(stored.values);
  session->inputs_ = std::move(stored.inputs);
  session->next_token_id_ = stored.next_token_id;
  session->epoch_ = stored.epoch;
  session->selected_ = stored.selected;
  session->HashLeavesFrom(0);
  return session;
}

VectorSession::~VectorSession() { LETHE_CHECK(!staged_); }

absl::Span<const double> VectorSession::KeyOf(int64_t rank) const {
  const auto width = static_cast<size_t>(options_.params.key_dim);
  return keys().subspan(static_cast<size_t>(rank) * width, width);
}

absl::Span<const double> VectorSession::ValueOf(int64_t rank) const {
  const auto width = static_cast<size_t>(options_.value_dim);
  return values().subspan(static_cast<size_t>(rank) * width, width);
}

absl::Status VectorSession::CheckAppend(absl::Span<const double> keys,
                                        absl::Span<const double> values,
                                        absl::string_view subject) const {
  LETHE_RETURN_IF_ERROR(CheckVectorRows("keys", keys, options_.params.key_dim));
  const int64_t count = static_cast<int64_t>(keys.size()) / options_.params.key_dim;
  if (static_cast<int64_t>(values.size()) != count * options_.value_dim) {
    return absl::InvalidArgumentError(absl::StrCat("values: want one row of ", options_.value_dim,
                                                   " numbers for each of the ", count, " keys"));
  }
  if (options_.value_dim > 0) {
    LETHE_RETURN_IF_ERROR(CheckVectorRows("values", values, options_.value_dim));
  }
  if (subject.size() > kMaxSubjectBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("subject must be at most ", kMaxSubjectBytes, " bytes"));
  }
  const int64_t left = options_.max_inputs - num_tokens();
  if (count > left) {
    return absl::ResourceExhaustedError(absl::StrCat("keys: got ", count,
                                                     " rows, the session can take ", left,
                                                     " more (limit ", options_.max_inputs, ")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenIdRange> VectorSession::Append(absl::Span<const double> keys,
                                                   absl::Span<const double> values,
                                                   absl::string_view subject) {
  LETHE_CHECK(!staged_);
  LETHE_RETURN_IF_ERROR(CheckAppend(keys, values, subject));
  LETHE_RETURN_IF_ERROR(solver_->AddSeveral(keys));
  const int64_t first_rank = num_tokens();
  const TokenIdRange given = {
      next_token_id_, next_token_id_ + keys.size() / static_cast<size_t>(options_.params.key_dim)};
  // Zero has one sign: a bundle, like all canonical JSON here, has one text for it.
  for (const double component : keys) keys_.push_back(component + 0.0);
  for (const double component : values) values_.push_back(component + 0.0);
  for (; next_token_id_ < given.end; ++next_token_id_) {
    inputs_.Append(next_token_id_, 0, InputKind::kAppended, subject);
  }
  HashLeavesFrom(first_rank);
  ++epoch_;
  return given;
}

void VectorSession::HashLeavesFrom(int64_t rank) {
  tree_.Truncate(static_cast<uint64_t>(rank));
  for (; rank < num_tokens(); ++rank) {
    tree_.Append(audit::InputTree::LeafHash(BytesOf(KeyOf(rank)), BytesOf(ValueOf(rank))));
  }
}

void VectorSession::EraseLeaves(absl::Span<const int64_t> ranks) {
  if (ranks.size() <= kLeavesOneByOne) {
    for (size_t k = ranks.size(); k-- > 0;) tree_.Erase(static_cast<uint64_t>(ranks[k]));
    return;
  }
  std::vector<audit::Sha256Digest> kept;
  size_t next = 0;
  for (auto rank = static_cast<uint64_t>(ranks[0]); rank < tree_.num_leaves(); ++rank) {
    const bool removed = next < ranks.size() && static_cast<uint64_t>(ranks[next]) == rank;
    next += removed ? 1 : 0;
    if (!removed) kept.push_back(tree_.leaf(rank));
  }
  tree_.Truncate(static_cast<uint64_t>(ranks[0]));
  for (const audit::Sha256Digest& leaf : kept) tree_.Append(leaf);
}

audit::StateParts VectorSession::StateParts() const {
  audit::StateParts parts;
  parts.Add("model", audit::AsStringView(ModelDigest(options_)));
  parts.Add("numerics", audit::AsStringView(NumericsId()));
  parts.Add("device", kCpuDeviceKind);
  ByteWriter count;
  count.U64(static_cast<uint64_t>(num_tokens()));
  parts.Add("tokens", count.bytes());
  const audit::SupportState support =
      SupportStateOf(options_.params, solver_->solution(), tree_.Root());
  parts.Add(audit::SupportPartName(0, 0, 0), audit::SupportStateBytes(support));
  return parts;
}

std::vector<SvHead> VectorSession::SvHeads() const {
  SvHead head;
  head.name = "layer.0.group.0.head.0";
  head.value_dim = options_.value_dim;
  head.params = &options_.params;
  head.solution = &solver_->solution();
  head.keys = keys();
  head.values = values();
  return {head};
}

int64_t VectorSession::num_support_vectors() const {
  const int64_t n = num_tokens();
  // rho is not due for a count.
  if (static_cast<double>(n) <= options_.params.box_mass) return n;
  const std::vector<double>& a = solver_->solution().a;
  return n - std::count(a.begin(), a.end(), 0.0);
}

SessionBytes VectorSession::bytes() const {
  SessionBytes bytes;
  bytes.state = solver_->state_bytes() + tree_.state_bytes() + support_.state_bytes() +
                (keys_.capacity() + values_.capacity()) * sizeof(double);
  bytes.inputs = inputs_.state_bytes();
  return bytes;
}

void VectorSession::SolveAgain() {
  slow_solves_before_ += solver_->counters().fallbacks;
  solver_ = std::make_unique<svdd::IncrementalSolver>(options_.params);
  if (!keys_.empty()) LETHE_CHECK(solver_->AddSeveral(keys_).ok());
}

absl::StatusOr<ForgetPlan> VectorSession::PlanForget(const ForgetSelector& selector,
                                                     DerivedPolicy policy,
                                                     std::optional<ForgetWay> way) const {
  LETHE_ASSIGN_OR_RETURN(ForgetSelection selection, SelectForForget(inputs_, selector, policy));
  ForgetPlan plan;
  plan.selected_ids = inputs_.IdsAt(selection.selected);
  plan.num_tokens_before = num_tokens();
  plan.num_tokens_after = num_tokens() - static_cast<int64_t>(selection.removed.size());
  plan.first_rank = selection.removed.front();
  plan.snapshot_rank = plan.first_rank;
  plan.removed_ranks = std::move(selection.removed);
  plan.way = way.value_or(ForgetWay::kReplay);
  return plan;
}

absl::StatusOr<std::unique_ptr<AnyStagedForget>> VectorSession::Stage(
    const ForgetSelector& selector, DerivedPolicy policy, const Checkpoint& checkpoint,
    std::optional<ForgetWay> way) {
  if (checkpoint) LETHE_RETURN_IF_ERROR(checkpoint());
  LETHE_ASSIGN_OR_RETURN(ForgetPlan plan, PlanForget(selector, policy, way));
  return StageRemoval(std::move(plan.removed_ranks), plan.way, false);
}

absl::Status VectorSession::CheckSelection() const {
  if (options_.selection) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "session_id: this session was created without selection: its reserve keys stay");
}

absl::StatusOr<std::unique_ptr<AnyStagedForget>> VectorSession::StageEviction() {
  LETHE_RETURN_IF_ERROR(CheckSelection());
  std::vector<int64_t> ranks;
  const std::vector<svdd::Partition>& classes = solver_->solution().classes;
  for (size_t rank = 0; rank < classes.size(); ++rank) {
    if (classes[rank] == svdd::Partition::kReserve) ranks.push_back(static_cast<int64_t>(rank));
  }
  if (ranks.empty()) {
    return absl::FailedPreconditionError("session_id: the session has no reserve keys");
  }
  return StageRemoval(std::move(ranks), ForgetWay::kReplay, true);
}

absl::Status VectorSession::RemoveKeys(absl::Span<const int64_t> ranks, ForgetWay way) {
  if (way == ForgetWay::kReplay) LETHE_RETURN_IF_ERROR(solver_->RemoveSeveral(ranks));
  EraseRows(ranks, static_cast<size_t>(options_.params.key_dim), &keys_);
  EraseRows(ranks, static_cast<size_t>(options_.value_dim), &values_);
  if (way == ForgetWay::kReevaluation) SolveAgain();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<AnyStagedForget>> VectorSession::StageRemoval(
    std::vector<int64_t> ranks, ForgetWay way, bool eviction) {
  LETHE_CHECK(!staged_);
  ForgetResult result;
  result.forgotten_ids = inputs_.IdsAt(ranks);
  result.num_tokens_before = num_tokens();
  result.num_tokens_after = num_tokens() - static_cast<int64_t>(ranks.size());
  result.first_rank = ranks.front();
  result.snapshot_rank = ranks.front();
  result.way = way;
  result.digest_before = Digest();
  Removed removed;
  for (const int64_t rank : ranks) {
    removed.keys.insert(removed.keys.end(), KeyOf(rank).begin(), KeyOf(rank).end());
    removed.values.insert(removed.values.end(), ValueOf(rank).begin(), ValueOf(rank).end());
  }
  LETHE_RETURN_IF_ERROR(RemoveKeys(ranks, way));
  removed.ranks = std::move(ranks);
  removed.inputs = Inputs(inputs_);
  inputs_.Remove(removed.ranks);
  EraseLeaves(removed.ranks);
  support_.Clear();
  result.digest_after = Digest();
  result.gaps = inputs_.Gaps(next_token_id_);
  return std::unique_ptr<AnyStagedForget>(
      new StagedRemoval(this, std::move(removed), std::move(result), eviction));
}

void VectorSession::PutBack(const Removed& removed) {
  InsertRows(removed.ranks, removed.keys, static_cast<size_t>(options_.params.key_dim), &keys_);
  InsertRows(removed.ranks, removed.values, static_cast<size_t>(options_.value_dim), &values_);
  inputs_ = Inputs(removed.inputs);
  HashLeavesFrom(removed.ranks.front());
  support_.Clear();
  SolveAgain();
}

absl::StatusOr<ForgetResult> VectorSession::CommitStaged(std::unique_ptr<AnyStagedForget> staged) {
  auto* own = dynamic_cast<StagedRemoval*>(staged.get());
  LETHE_CHECK(own != nullptr && own->session_ == this);
  own->session_ = nullptr;
  staged_ = false;
  selected_ = selected_ || own->eviction_;
  ++epoch_;
  return std::move(own->result_);
}

}  // namespace lethe
