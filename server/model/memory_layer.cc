#include "server/model/memory_layer.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/rms_norm/rms_norm.h"

namespace lethe {
namespace {

// Workspace buffers of the layer; its groups use 0 ... 7.
constexpr int kGroupOut = 8;
constexpr int kConcatenated = 9;

class MemoryLayerSnapshot final : public LayerSnapshot {
 public:
  size_t state_bytes() const override {
    size_t bytes = 0;
    for (const MemoryGroup::Snapshot& group : groups) bytes += MemoryGroup::SnapshotBytes(group);
    return bytes;
  }
  // Of a whole layer, none of a replay.
  void AppendTo(ByteWriter* out) const override {
    for (const MemoryGroup::Snapshot& group : groups) MemoryGroup::AppendSnapshot(group, out);
    out->I64(num_stored);
  }
  std::vector<MemoryGroup::Snapshot> groups;
  int64_t num_stored = 0;  // of a bank: tokens that it had taken
};

absl::StatusOr<const MemoryLayerSnapshot*> SnapshotOf(const LayerSnapshot& snapshot,
                                                      size_t num_groups) {
  const auto* memory = dynamic_cast<const MemoryLayerSnapshot*>(&snapshot);
  if (memory == nullptr || memory->groups.size() != num_groups) {
    return absl::InvalidArgumentError("snapshot of another layer kind");
  }
  return memory;
}

void AppendRow(absl::Span<const float> matrix, int64_t num_rows, int64_t row, WipedFloats* to) {
  const auto columns = static_cast<std::ptrdiff_t>(matrix.size()) / num_rows;
  to->insert(to->end(), matrix.begin() + row * columns, matrix.begin() + (row + 1) * columns);
}

// q | k | v of the block's last token.
WipedFloats LastOf(const MemoryGroup::Projections& p, int64_t count) {
  WipedFloats last;
  for (const absl::Span<float> matrix : {p.q, p.k, p.v}) AppendRow(matrix, count, count - 1, &last);
  return last;
}

}  // namespace

MemoryLayerState::MemoryLayerState(const MemoryWeights& weights, float norm_eps, Groups groups)
    : weights_(&weights), norm_eps_(norm_eps), groups_(std::move(groups)) {
  for (const std::unique_ptr<MemoryGroup>& group : groups_) {
    out_begin_.push_back(out_begin_.back() + group->out_columns());
    stored_begin_.push_back(stored_begin_.back() + group->stored_columns());
  }
}

std::unique_ptr<MemoryLayerState> MemoryLayerState::MakeBank(const MemoryWeights& weights,
                                                             float norm_eps, Groups groups,
                                                             size_t stored_bytes) {
  auto layer = std::make_unique<MemoryLayerState>(weights, norm_eps, std::move(groups));
  layer->bank_ = absl::WrapUnique(new Bank{StoredInputs(layer->stored_begin_.back(), stored_bytes),
                                           BankToken(), RowMaker(layer->stored_begin_.back())});
  return layer;
}

absl::Span<float> MemoryLayerState::Norm(absl::Span<const float> x, Workspace* workspace) const {
  const absl::Span<float> h = workspace->h(static_cast<int64_t>(x.size()));
  RmsNorm(x, weights_->norm, norm_eps_, h);
  return h;
}

absl::Status MemoryLayerState::Forward(int64_t count, absl::Span<float> x, Workspace* workspace) {
  const absl::Span<const float> h = Norm(x, workspace);
  NewRows rows = MakeRows(count);
  BankToken last;
  for (size_t g = 0; g < groups_.size(); ++g) {
    LETHE_ASSIGN_OR_RETURN(const MemoryGroup::Projections p,
                           groups_[g]->Project(h, count, MemoryGroup::Reads::kWanted,
                                               groups_[g]->mutable_tails(), workspace));
    if (is_bank()) last.projections.push_back(LastOf(p, count));
    LETHE_RETURN_IF_ERROR(ApplyGroup(g, h, count, p, rows, workspace));
  }
  if (is_bank()) AppendRow(x, count, count - 1, &last.x);
  Conclude(count, std::move(rows), std::move(last), x, workspace);
  return absl::OkStatus();
}

absl::Status MemoryLayerState::ApplyGroup(size_t g, absl::Span<const float> h, int64_t count,
                                          const MemoryGroup::Projections& p, const NewRows& rows,
                                          Workspace* workspace) {
  const std::vector<float*> stored = PartsOf(rows, g);
  const int64_t width = groups_[g]->out_columns();
  const int64_t columns = weights_->wo.num_inputs();
  const absl::Span<float> out = workspace->inner(kGroupOut, count * width);
  LETHE_RETURN_IF_ERROR(groups_[g]->Apply(h, count, p, stored, out, workspace));
  const absl::Span<float> all = workspace->inner(kConcatenated, count * columns);
  for (int64_t t = 0; t < count; ++t) {
    std::copy_n(out.begin() + t * width, width, all.begin() + t * columns + out_begin_[g]);
  }
  return absl::OkStatus();
}

void MemoryLayerState::Conclude(int64_t count, NewRows rows, BankToken last, absl::Span<float> x,
                                Workspace* workspace) {
  const absl::Span<float> all = workspace->inner(kConcatenated, count * weights_->wo.num_inputs());
  const absl::Span<float> y = workspace->y(static_cast<int64_t>(x.size()));
  Matmul(all, count, weights_->wo, y);
  AddInPlace(y, x);
  if (!is_bank()) return;
  for (std::shared_ptr<float>& row : rows) bank_->stored.Append(std::move(row));
  bank_->last = std::move(last);
}

std::vector<float*> MemoryLayerState::PartsOf(const NewRows& rows, size_t g) const {
  std::vector<float*> parts;
  for (const std::shared_ptr<float>& row : rows) {
    parts.push_back(row.get() + stored_begin_[g]);
  }
  return parts;
}

MemoryLayerState::NewRows MemoryLayerState::MakeRows(int64_t count) {
  NewRows rows;
  if (!is_bank()) return rows;
  for (int64_t t = 0; t < count; ++t) rows.push_back(bank_->rows.Make());
  return rows;
}

std::unique_ptr<LayerSnapshot> MemoryLayerState::Snapshot() const {
  auto snapshot = std::make_unique<MemoryLayerSnapshot>();
  for (const std::unique_ptr<MemoryGroup>& group : groups_) {
    snapshot->groups.push_back(group->TakeSnapshot());
  }
  if (is_bank()) snapshot->num_stored = bank_->stored.size();
  return snapshot;
}

absl::Status MemoryLayerState::Restore(const LayerSnapshot& snapshot) {
  LETHE_ASSIGN_OR_RETURN(const MemoryLayerSnapshot* memory, SnapshotOf(snapshot, groups_.size()));
  for (size_t i = 0; i < groups_.size(); ++i) {
    LETHE_RETURN_IF_ERROR(groups_[i]->Restore(memory->groups[i]));
  }
  if (is_bank()) {
    if (memory->num_stored > bank_->stored.size()) {
      return absl::InvalidArgumentError("snapshot of more tokens than the layer has taken");
    }
    bank_->stored.Truncate(memory->num_stored);
    bank_->last = BankToken();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LayerSnapshot>> MemoryLayerState::ReadSnapshot(
    ByteReader* in) const {
  auto snapshot = std::make_unique<MemoryLayerSnapshot>();
  for (const std::unique_ptr<MemoryGroup>& group : groups_) {
    LETHE_ASSIGN_OR_RETURN(MemoryGroup::Snapshot read, group->ReadSnapshot(in));
    snapshot->groups.push_back(std::move(read));
  }
  LETHE_RETURN_IF_ERROR(in->I64(&snapshot->num_stored));
  if (snapshot->num_stored < 0) return absl::DataLossError("a snapshot of another layer");
  return snapshot;
}

void MemoryLayerState::AppendInputs(int64_t first, int64_t end, ByteWriter* out) const {
  for (const std::unique_ptr<MemoryGroup>& group : groups_) group->AppendInputs(first, end, out);
}

absl::Status MemoryLayerState::ReadInputs(int64_t first, int64_t end, ByteReader* in) {
  for (const std::unique_ptr<MemoryGroup>& group : groups_) {
    LETHE_RETURN_IF_ERROR(group->ReadInputs(in));
  }
  if (!is_bank()) return absl::OkStatus();
  for (int64_t rank = first; rank < end; ++rank) bank_->stored.Append(nullptr);
  return absl::OkStatus();
}

std::unique_ptr<LayerState> MemoryLayerState::Clone() const {
  Groups groups;
  for (const std::unique_ptr<MemoryGroup>& group : groups_) groups.push_back(group->Clone());
  auto clone = std::make_unique<MemoryLayerState>(*weights_, norm_eps_, std::move(groups));
  if (is_bank()) clone->bank_ = std::make_unique<Bank>(*bank_);
  return clone;
}

void MemoryLayerState::AppendDigestParts(const std::string& prefix,
                                         audit::StateParts* parts) const {
  for (size_t i = 0; i < groups_.size(); ++i) {
    groups_[i]->AppendDigestParts(absl::StrCat(prefix, ".group.", i), parts);
  }
}

size_t MemoryLayerState::state_bytes() const {
  size_t bytes = 0;
  for (const std::unique_ptr<MemoryGroup>& group : groups_) bytes += group->state_bytes();
  return bytes;
}

std::vector<const svdd::SvMemory*> MemoryLayerState::SvMemories() const {
  std::vector<const svdd::SvMemory*> memories;
  for (const std::unique_ptr<MemoryGroup>& group : groups_) {
    memories.push_back(group->sv_memory());
  }
  return memories;
}

absl::Status MemoryLayerState::SkipSlots(int64_t count) {
  if (is_bank()) return absl::OkStatus();  // its stored inputs have one row a token
  for (const std::unique_ptr<MemoryGroup>& group : groups_) {
    LETHE_RETURN_IF_ERROR(group->SkipSlots(count));
  }
  return absl::OkStatus();
}

std::unique_ptr<LayerSnapshot> MemoryLayerState::ReplaySnapshot(const Groups& groups) {
  auto snapshot = std::make_unique<MemoryLayerSnapshot>();
  for (const std::unique_ptr<MemoryGroup>& group : groups) {
    MemoryGroup::Snapshot of_group;
    if (group != nullptr) of_group.memory = group->TakeMemorySnapshot();
    snapshot->groups.push_back(std::move(of_group));
  }
  return snapshot;
}

absl::Status MemoryLayerState::RestoreForReplay(const LayerSnapshot& snapshot, Groups* groups) {
  LETHE_ASSIGN_OR_RETURN(const MemoryLayerSnapshot* memory, SnapshotOf(snapshot, groups->size()));
  for (size_t g = 0; g < groups->size(); ++g) {
    if ((*groups)[g] == nullptr) continue;
    LETHE_RETURN_IF_ERROR((*groups)[g]->RestoreMemory(*memory->groups[g].memory));
  }
  return absl::OkStatus();
}

BankEnd MemoryLayerState::EmptyEnd() const {
  BankEnd end;
  for (const std::unique_ptr<MemoryGroup>& group : groups_) {
    end.tails.push_back(group->EmptyTails());
  }
  return end;
}

absl::Status MemoryLayerState::Collect(absl::Span<const float> x, int64_t count,
                                       MemoryGroup::Reads reads, BankEnd* end, RowMaker* maker,
                                       BankInputs* inputs, Workspace* workspace) const {
  const absl::Span<const float> h = Norm(x, workspace);
  NewRows rows;
  for (int64_t t = 0; t < count; ++t) rows.push_back(maker->Make());
  end->last = BankToken();
  inputs->keys.resize(groups_.size());
  inputs->values.resize(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    const MemoryGroup& group = *groups_[g];
    LETHE_ASSIGN_OR_RETURN(const MemoryGroup::Projections p,
                           group.Project(h, count, reads, &end->tails[g], workspace));
    if (reads == MemoryGroup::Reads::kWanted) end->last.projections.push_back(LastOf(p, count));
    const MemoryInputs taken = group.Prepare(h, count, p, workspace);
    group.Store(taken, PartsOf(rows, g));
    if (group.sv_memory() == nullptr) continue;
    inputs->keys[g].insert(inputs->keys[g].end(), taken.k.begin(), taken.k.end());
    inputs->values[g].insert(inputs->values[g].end(), taken.v.begin(), taken.v.end());
  }
  if (reads == MemoryGroup::Reads::kWanted) AppendRow(x, count, count - 1, &end->last.x);
  inputs->rows.insert(inputs->rows.end(), rows.begin(), rows.end());
  return absl::OkStatus();
}

std::unique_ptr<MemoryLayerState> MemoryLayerState::With(Groups groups, StoredInputs stored,
                                                         BankToken last) const {
  auto layer = std::make_unique<MemoryLayerState>(*weights_, norm_eps_, std::move(groups));
  layer->bank_ = absl::WrapUnique(
      new Bank{std::move(stored), std::move(last), RowMaker(stored_begin_.back())});
  return layer;
}

absl::Status MemoryLayerState::RepeatLast(absl::Span<float> x, Workspace* workspace) {
  BankToken last = std::move(bank_->last);
  LETHE_CHECK(last.x.size() == x.size() && last.projections.size() == groups_.size());
  std::copy(last.x.begin(), last.x.end(), x.begin());
  const absl::Span<const float> h = Norm(x, workspace);
  NewRows rows = MakeRows(1);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int64_t keys = groups_[g]->key_columns();
    const MemoryGroup::Projections p = {workspace->inner(3, keys), workspace->inner(4, keys),
                                        workspace->inner(5, groups_[g]->out_columns())};
    const float* from = last.projections[g].data();
    for (const absl::Span<float> row : {p.q, p.k, p.v}) {
      std::copy_n(from, row.size(), row.begin());
      from += row.size();
    }
    LETHE_RETURN_IF_ERROR(ApplyGroup(g, h, 1, p, rows, workspace));
  }
  Conclude(1, std::move(rows), std::move(last), x, workspace);
  return absl::OkStatus();
}

}  // namespace lethe
