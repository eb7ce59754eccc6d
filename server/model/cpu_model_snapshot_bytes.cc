// CpuModelState: snapshots as bytes.
#include <utility>

#include "kernels/base/byte_io.h"
#include "kernels/base/status_macros.h"
#include "memory/memory.h"
#include "server/model/cpu_model_state.h"
#include "server/model/layer_state.h"

namespace lethe {
namespace {

constexpr uint64_t kSnapshotBytesVersion = 1;

absl::Status OtherSnapshot() { return absl::DataLossError("stored snapshot: of another state"); }

}  // namespace

std::string CpuModelState::WriteSnapshot(const ModelSnapshot& any, int64_t inputs_from) const {
  const auto& snapshot = dynamic_cast<const CpuModelSnapshot&>(any);
  ByteWriter writer;
  writer.U64(kSnapshotBytesVersion);
  writer.I64(inputs_from);
  writer.I64(snapshot.num_tokens_);
  writer.U64(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->AppendInputs(inputs_from, snapshot.num_tokens_, &writer);
    snapshot.layers_[i]->AppendTo(&writer);
  }
  writer.Array<float>(snapshot.features_);
  return writer.Take();
}

absl::StatusOr<std::shared_ptr<const ModelSnapshot>> CpuModelState::ReadSnapshot(
    absl::string_view bytes) {
  ByteReader reader(bytes);
  uint64_t version = 0;
  int64_t inputs_from = 0;
  uint64_t num_layers = 0;
  std::shared_ptr<CpuModelSnapshot> snapshot(new CpuModelSnapshot);
  LETHE_RETURN_IF_ERROR(reader.U64(&version));
  LETHE_RETURN_IF_ERROR(reader.I64(&inputs_from));
  LETHE_RETURN_IF_ERROR(reader.I64(&snapshot->num_tokens_));
  LETHE_RETURN_IF_ERROR(reader.U64(&num_layers));
  const bool goes_on = inputs_from == num_read_ && snapshot->num_tokens_ > inputs_from &&
                       snapshot->num_tokens_ % kChunkTokens == 0 && num_tokens_ == 0;
  if (version != kSnapshotBytesVersion || !goes_on || num_layers != layers_.size()) {
    return OtherSnapshot();
  }
  for (const std::unique_ptr<LayerState>& layer : layers_) {
    LETHE_RETURN_IF_ERROR(layer->ReadInputs(inputs_from, snapshot->num_tokens_, &reader));
    LETHE_ASSIGN_OR_RETURN(std::unique_ptr<LayerSnapshot> read, layer->ReadSnapshot(&reader));
    snapshot->layers_.push_back(std::move(read));
  }
  std::vector<float> features;
  LETHE_RETURN_IF_ERROR(reader.Array(&features));
  if (features.size() != features_.size() || reader.remaining() != 0) return OtherSnapshot();
  snapshot->features_.assign(features.begin(), features.end());
  WipeFrom(&features, 0);
  num_read_ = snapshot->num_tokens_;
  return snapshot;
}

}  // namespace lethe
