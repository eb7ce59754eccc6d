// The memory layer on a device (docs/model-format.md 2.3): what its groups share is done once for all.
#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/elementwise/columns.h"
#include "server/device/device_group.h"

namespace lethe {
namespace {

using elementwise::HeadsPart;
using elementwise::JoinPart;
using elementwise::SplitPart;

// Parts of one matrix, on the device.
template <typename Part>
struct PartTable {
  static absl::StatusOr<PartTable> From(Queue* queue, const std::vector<Part>& parts) {
    PartTable table;
    for (const Part& part : parts) table.widest = std::max(table.widest, part.num_columns);
    LETHE_ASSIGN_OR_RETURN(table.parts, DeviceArray<Part>::From(queue, parts));
    return table;
  }
  int64_t size() const { return static_cast<int64_t>(parts.size()); }

  DeviceArray<Part> parts;
  int64_t widest = 1;
};

std::unique_ptr<DeviceGroup> MakeGroup(const GroupSetup& setup) {
  switch (setup.config->kind) {
    case MemoryKind::kPalimpsaD:
    case MemoryKind::kPalimpsaM:
      return MakePalimpsaGroup(setup);
    case MemoryKind::kVla:
      return MakeVlaGroup(setup);
    case MemoryKind::kOvq:
      return MakeOvqGroup(setup);
    case MemoryKind::kWindow:
      return MakeWindowGroup(setup);
    case MemoryKind::kSv:
      return MakeSvGroup(setup);
  }
  LETHE_CHECK(false);
  return nullptr;
}

class MemoryLayer final : public DeviceLayer {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceLayer>> Create(const LayerSetup& setup,
                                                             const MemoryLayerConfig& config,
                                                             const DeviceMemoryWeights& weights) {
    std::unique_ptr<MemoryLayer> layer(new MemoryLayer(setup, config, weights));
    std::vector<SplitPart> conv_parts;
    std::vector<SplitPart> gate_parts;
    std::vector<HeadsPart> norm_parts;
    std::vector<JoinPart> join_parts;
    int64_t first_read = 0;
    for (size_t g = 0; g < config.groups.size(); ++g) {
      GroupSetup group;
      group.layer = &setup;
      group.config = &config.groups[g];
      group.weights = &weights.groups[g];
      group.columns = layer->columns_.groups[g];
      group.gates = weights.gate_columns[g];
      group.parts = &setup.parts->groups[g];
      group.first_read = first_read;
      group.conv_parts = &conv_parts;
      group.gate_parts = &gate_parts;
      group.norm_parts = &norm_parts;
      group.join_parts = &join_parts;
      layer->groups_.push_back(MakeGroup(group));
      first_read += group.columns.num_values;
    }
    LETHE_ASSIGN_OR_RETURN(layer->conv_parts_, PartTable<SplitPart>::From(setup.queue, conv_parts));
    LETHE_ASSIGN_OR_RETURN(layer->gate_parts_, PartTable<SplitPart>::From(setup.queue, gate_parts));
    LETHE_ASSIGN_OR_RETURN(layer->norm_parts_, PartTable<HeadsPart>::From(setup.queue, norm_parts));
    if (join_parts.size() == 1 && join_parts[0].factor == nullptr &&
        join_parts[0].gain == nullptr) {
      layer->reads_ = join_parts[0].x;  // they are all there is
      return layer;
    }
    LETHE_ASSIGN_OR_RETURN(layer->join_parts_, PartTable<JoinPart>::From(setup.queue, join_parts));
    return layer;
  }

  absl::Status Forward(const ForwardBatch& batch) const override {
    Queue* queue = batch.queue;
    const int64_t rows = batch.sequences.num_tokens;
    LETHE_RETURN_IF_ERROR(NormResidual(batch, is_first_, weights_->norm, norm_eps_, h_));
    LETHE_RETURN_IF_ERROR(MatmulBatch(queue, h_, rows, weights_->w_qkv, kActivationTerms, raw_));
    LETHE_RETURN_IF_ERROR(CausalConvBatch(queue, weights_->conv.packed(), raw_, batch.sequences,
                                          conv_pool_, convolved_));
    LETHE_RETURN_IF_ERROR(
        Split(queue, convolved_, {rows, columns_.num_channels}, conv_parts_, batch.is_bad));
    if (num_gates_ > 0) {
      LETHE_RETURN_IF_ERROR(
          MatmulBatch(queue, h_, rows, weights_->w_gates, kActivationTerms, gates_));
      LETHE_RETURN_IF_ERROR(Split(queue, gates_, {rows, num_gates_}, gate_parts_, nullptr));
    }
    if (norm_parts_.size() > 0) {
      LETHE_RETURN_IF_ERROR(elementwise::NormalizeHeads(
          queue, norm_parts_.parts.data(), norm_parts_.size(), norm_parts_.widest, rows));
    }
    for (const std::unique_ptr<DeviceGroup>& group : groups_) {
      LETHE_RETURN_IF_ERROR(group->Forward(batch));
    }
    if (join_parts_.size() > 0) {
      LETHE_RETURN_IF_ERROR(elementwise::JoinColumns(queue, join_parts_.parts.data(),
                                                     join_parts_.size(), join_parts_.widest,
                                                     {rows, columns_.num_reads}, all_));
    }
    return MatmulBatch(queue, reads_, rows, weights_->wo, kActivationTerms, batch.y);
  }

 private:
  MemoryLayer(const LayerSetup& setup, const MemoryLayerConfig& config,
              const DeviceMemoryWeights& weights)
      : weights_(&weights),
        columns_(config),
        is_first_(setup.is_first),
        num_gates_(weights.w_gates.num_outputs()),
        norm_eps_(setup.norm_eps),
        conv_pool_(setup.arrays->Floats(setup.parts->own[0])),
        h_(setup.plan->Rows(setup.width)),
        raw_(setup.plan->Rows(columns_.num_channels)),
        convolved_(setup.plan->Rows(columns_.num_channels)),
        all_(setup.plan->Rows(columns_.num_reads)),
        reads_(all_),
        gates_(num_gates_ > 0 ? setup.plan->Rows(num_gates_) : nullptr) {}

  static absl::Status Split(Queue* queue, const float* x, const elementwise::Matrix& shape,
                            const PartTable<SplitPart>& table, uint8_t* is_bad) {
    return elementwise::SplitColumns(queue, x, shape, table.parts.data(), table.size(),
                                     table.widest, is_bad);
  }

  const DeviceMemoryWeights* weights_;
  MemoryColumns columns_;
  bool is_first_;
  int64_t num_gates_;
  float norm_eps_;
  float* conv_pool_;
  float* h_;
  float* raw_;
  float* convolved_;
  float* all_;
  const float* reads_;  // what wo multiplies
  float* gates_;
  std::vector<std::unique_ptr<DeviceGroup>> groups_;
  PartTable<SplitPart> conv_parts_;
  PartTable<SplitPart> gate_parts_;
  PartTable<HeadsPart> norm_parts_;
  PartTable<JoinPart> join_parts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceLayer>> MakeMemoryLayer(const LayerSetup& setup,
                                                             const MemoryLayerConfig& config,
                                                             const DeviceMemoryWeights& weights) {
  return MemoryLayer::Create(setup, config, weights);
}

}  // namespace lethe
