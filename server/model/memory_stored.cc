// MemoryGroup: the rows that a bank stores of each token, and what a Forget does with them.
#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/model/memory_group.h"

namespace lethe {
namespace {

// Where the parts of a row begin; a part that the kind lacks is empty.
struct RowLayout {
  explicit RowLayout(const GroupConfig& config)
      : keys(config.heads * config.key_dim), values(config.heads * config.value_dim) {
    const bool palimpsa =
        config.kind == MemoryKind::kPalimpsaD || config.kind == MemoryKind::kPalimpsaM;
    if (palimpsa) log_decays = config.heads;
    if (palimpsa && config.metaplasticity) precisions = values;
    if (config.kind == MemoryKind::kVla && !config.rls) directions = keys;
  }
  int64_t size() const { return keys + values + log_decays + precisions + directions; }

  int64_t keys;
  int64_t values;
  int64_t log_decays = 0;
  int64_t precisions = 0;
  int64_t directions = 0;
};

// Copies one part of every token between a matrix of its own and the rows.
class RowPart {
 public:
  RowPart(int64_t begin, int64_t columns) : begin_(begin), columns_(columns) {}
  void Put(absl::Span<const float> part, absl::Span<float* const> rows) const {
    for (size_t t = 0; t < rows.size(); ++t) {
      std::copy_n(part.data() + static_cast<int64_t>(t) * columns_, columns_, rows[t] + begin_);
    }
  }
  void Take(absl::Span<const float* const> rows, absl::Span<float> part) const {
    for (size_t t = 0; t < rows.size(); ++t) {
      std::copy_n(rows[t] + begin_, columns_, part.data() + static_cast<int64_t>(t) * columns_);
    }
  }

 private:
  int64_t begin_;
  int64_t columns_;
};

absl::string_view Bytes(absl::Span<const float> values) {
  return absl::string_view(reinterpret_cast<const char*>(values.data()),
                           values.size() * sizeof(float));
}

}  // namespace

int64_t MemoryGroup::stored_columns() const {
  return sv_memory_ != nullptr ? 0 : RowLayout(*config_).size();
}

void MemoryGroup::Store(const MemoryInputs& inputs, absl::Span<float* const> rows) const {
  if (sv_memory_ != nullptr) return;
  int64_t begin = 0;
  for (const absl::Span<const float> part :
       {inputs.k, inputs.v, inputs.log_decay, inputs.precision, inputs.write_direction}) {
    const int64_t columns = static_cast<int64_t>(part.size() / rows.size());
    RowPart(begin, columns).Put(part, rows);
    begin += columns;
  }
  LETHE_DCHECK(begin == stored_columns());
}

absl::Status MemoryGroup::Replay(absl::Span<const float* const> rows, Workspace* workspace) {
  LETHE_CHECK(sv_memory_ == nullptr);
  const RowLayout layout(*config_);
  const auto count = static_cast<int64_t>(rows.size());
  int64_t begin = 0;
  const auto take = [&](int64_t columns, int buffer) {
    const absl::Span<float> part = workspace->inner(buffer, count * columns);
    RowPart(begin, columns).Take(rows, part);
    begin += columns;
    return absl::Span<const float>(part);
  };
  MemoryInputs inputs;
  inputs.k = take(layout.keys, 4);
  inputs.v = take(layout.values, 5);
  inputs.log_decay = take(layout.log_decays, 6);
  inputs.precision = take(layout.precisions, 7);
  inputs.write_direction = take(layout.directions, 0);
  return AsInternal(memory_->Write(inputs, count));
}

absl::Status MemoryGroup::Write(const MemoryInputs& inputs, int64_t count) {
  LETHE_CHECK(sv_memory_ != nullptr);
  LETHE_RETURN_IF_ERROR(AsInternal(memory_->Write(inputs, count)));
  UpdateTrees();
  return absl::OkStatus();
}

std::unique_ptr<MemorySnapshot> MemoryGroup::TakeMemorySnapshot() const {
  return sv_memory_ != nullptr ? nullptr : memory_->Snapshot();
}

absl::Status MemoryGroup::RestoreMemory(const MemorySnapshot& snapshot) {
  return AsInternal(memory_->Restore(snapshot));
}

absl::StatusOr<std::unique_ptr<MemoryGroup>> MemoryGroup::Edited(const svdd::SvEdit& edit) const {
  LETHE_CHECK(sv_memory_ != nullptr);
  absl::StatusOr<std::unique_ptr<svdd::SvMemory>> memory = sv_memory_->Edited(edit);
  if (!memory.ok()) return AsInternal(memory.status());
  std::unique_ptr<MemoryGroup> edited(
      new MemoryGroup(*config_, *weights_, norm_eps_, *std::move(memory)));
  edited->tails_ = tails_;
  edited->CarryTrees(*this, edit);
  return edited;
}

// Leaves of tokens that stay as they were move to their new ranks; the others are hashed.
void MemoryGroup::CarryTrees(const MemoryGroup& before, const svdd::SvEdit& edit) {
  const auto first_of = [](const std::vector<int64_t>& ranks) {
    return ranks.empty() ? std::numeric_limits<int64_t>::max() : ranks.front();
  };
  const int64_t first_touched = std::min(first_of(edit.removed), first_of(edit.replaced));
  for (size_t head = 0; head < key_trees_.size(); ++head) {
    const svdd::SvHeadView view = sv_memory_->head(static_cast<int64_t>(head));
    const audit::InputTree& old_tree = before.key_trees_[head];
    const auto num_old = static_cast<int64_t>(old_tree.num_leaves());
    audit::InputTree tree = old_tree;
    const int64_t first = std::min(first_touched, num_old);
    tree.Truncate(static_cast<uint64_t>(std::min(first, view.solution->num_keys)));
    auto removed = std::lower_bound(edit.removed.begin(), edit.removed.end(), first);
    auto replaced = std::lower_bound(edit.replaced.begin(), edit.replaced.end(), first);
    for (int64_t old_rank = first;
         static_cast<int64_t>(tree.num_leaves()) < view.solution->num_keys; ++old_rank) {
      if (removed != edit.removed.end() && *removed == old_rank) {
        ++removed;
        continue;
      }
      const bool is_new = replaced != edit.replaced.end() && *replaced == old_rank;
      if (is_new) ++replaced;
      const bool known = !is_new && old_rank < num_old;
      tree.Append(known ? old_tree.leaf(static_cast<uint64_t>(old_rank))
                        : GatedLeaf(view, tree.num_leaves()));
    }
    key_trees_[head] = std::move(tree);
  }
}

audit::Sha256Digest MemoryGroup::GatedLeaf(const svdd::SvHeadView& view, uint64_t rank) const {
  const auto keys = static_cast<size_t>(config_->key_dim);
  const auto values = static_cast<size_t>(config_->value_dim);
  return audit::InputTree::LeafHash(Bytes(view.gated_keys.subspan(rank * keys, keys)),
                                    Bytes(view.gated_values.subspan(rank * values, values)));
}

void MemoryGroup::UpdateTrees() {
  for (size_t head = 0; head < key_trees_.size(); ++head) {
    const svdd::SvHeadView view = sv_memory_->head(static_cast<int64_t>(head));
    const auto num_gated = static_cast<uint64_t>(view.solution->num_keys);
    audit::InputTree& tree = key_trees_[head];
    if (tree.num_leaves() > num_gated) tree.Truncate(num_gated);
    while (tree.num_leaves() < num_gated) tree.Append(GatedLeaf(view, tree.num_leaves()));
  }
}

void MemoryGroup::AppendSnapshot(const Snapshot& snapshot, ByteWriter* out) {
  for (const CausalConvState* tail : {&snapshot.tails.q, &snapshot.tails.k, &snapshot.tails.v}) {
    tail->AppendTo(out);
  }
  snapshot.memory->AppendTo(out);
}

absl::StatusOr<MemoryGroup::Snapshot> MemoryGroup::ReadSnapshot(ByteReader* in) const {
  Snapshot snapshot;
  snapshot.tails = EmptyTails();
  for (CausalConvState* tail : {&snapshot.tails.q, &snapshot.tails.k, &snapshot.tails.v}) {
    LETHE_RETURN_IF_ERROR(tail->Read(in));
  }
  LETHE_ASSIGN_OR_RETURN(snapshot.memory, memory_->ReadSnapshot(in));
  return snapshot;
}

void MemoryGroup::AppendInputs(int64_t first, int64_t end, ByteWriter* out) const {
  if (sv_memory_ != nullptr) sv_memory_->AppendInputs(first, end, out);
}

absl::Status MemoryGroup::ReadInputs(ByteReader* in) {
  return sv_memory_ != nullptr ? sv_memory_->ReadInputs(in) : absl::OkStatus();
}

}  // namespace lethe
