// The memory layer (docs/model-format.md 2.3).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "kernels/rms_norm/rms_norm.h"
#include "server/model/layer_state.h"
#include "server/model/memory_group.h"

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
  std::vector<MemoryGroup::Snapshot> groups;
};

class MemoryLayerState final : public LayerState {
 public:
  MemoryLayerState(const MemoryWeights& weights, float norm_eps,
                   std::vector<std::unique_ptr<MemoryGroup>> groups)
      : weights_(&weights), norm_eps_(norm_eps), groups_(std::move(groups)) {}

  absl::Status Forward(int64_t count, absl::Span<float> x, Workspace* workspace) override {
    const auto size = static_cast<int64_t>(x.size());
    const absl::Span<float> h = workspace->h(size);
    RmsNorm(x, weights_->norm, norm_eps_, h);
    const int64_t columns = weights_->wo.num_inputs();
    const absl::Span<float> all = workspace->inner(kConcatenated, count * columns);
    int64_t first_column = 0;
    for (const std::unique_ptr<MemoryGroup>& group : groups_) {
      const int64_t width = group->out_columns();
      const absl::Span<float> out = workspace->inner(kGroupOut, count * width);
      LETHE_RETURN_IF_ERROR(group->Forward(h, count, out, workspace));
      for (int64_t t = 0; t < count; ++t) {
        std::copy_n(out.begin() + t * width, width, all.begin() + t * columns + first_column);
      }
      first_column += width;
    }
    const absl::Span<float> y = workspace->y(size);
    Matmul(all, count, weights_->wo, y);
    AddInPlace(y, x);
    return absl::OkStatus();
  }

  std::unique_ptr<LayerSnapshot> Snapshot() const override {
    auto snapshot = std::make_unique<MemoryLayerSnapshot>();
    for (const std::unique_ptr<MemoryGroup>& group : groups_) {
      snapshot->groups.push_back(group->TakeSnapshot());
    }
    return snapshot;
  }
  absl::Status Restore(const LayerSnapshot& snapshot) override {
    const auto* memory = dynamic_cast<const MemoryLayerSnapshot*>(&snapshot);
    if (memory == nullptr || memory->groups.size() != groups_.size()) {
      return absl::InvalidArgumentError("snapshot of another layer kind");
    }
    for (size_t i = 0; i < groups_.size(); ++i) {
      LETHE_RETURN_IF_ERROR(groups_[i]->Restore(memory->groups[i]));
    }
    return absl::OkStatus();
  }
  std::unique_ptr<LayerState> Clone() const override {
    std::vector<std::unique_ptr<MemoryGroup>> groups;
    for (const std::unique_ptr<MemoryGroup>& group : groups_) groups.push_back(group->Clone());
    return std::make_unique<MemoryLayerState>(*weights_, norm_eps_, std::move(groups));
  }
  void AppendDigestParts(const std::string& prefix, audit::StateParts* parts) const override {
    for (size_t i = 0; i < groups_.size(); ++i) {
      groups_[i]->AppendDigestParts(absl::StrCat(prefix, ".group.", i), parts);
    }
  }
  size_t state_bytes() const override {
    size_t bytes = 0;
    for (const std::unique_ptr<MemoryGroup>& group : groups_) bytes += group->state_bytes();
    return bytes;
  }
  std::vector<const svdd::SvMemory*> SvMemories() const override {
    std::vector<const svdd::SvMemory*> memories;
    for (const std::unique_ptr<MemoryGroup>& group : groups_) {
      memories.push_back(group->sv_memory());
    }
    return memories;
  }
  absl::Status SkipSlots(int64_t count) override {
    for (const std::unique_ptr<MemoryGroup>& group : groups_) {
      LETHE_RETURN_IF_ERROR(group->SkipSlots(count));
    }
    return absl::OkStatus();
  }

 private:
  const MemoryWeights* weights_;
  float norm_eps_;
  std::vector<std::unique_ptr<MemoryGroup>> groups_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LayerState>> MakeMemoryLayerState(const MemoryLayerConfig& config,
                                                                 const MemoryWeights& weights,
                                                                 float norm_eps) {
  std::vector<std::unique_ptr<MemoryGroup>> groups;
  for (size_t i = 0; i < config.groups.size(); ++i) {
    LETHE_ASSIGN_OR_RETURN(std::unique_ptr<MemoryGroup> group,
                           MemoryGroup::Create(config.groups[i], weights.groups[i], norm_eps));
    groups.push_back(std::move(group));
  }
  return std::unique_ptr<LayerState>(
      std::make_unique<MemoryLayerState>(weights, norm_eps, std::move(groups)));
}

}  // namespace lethe
