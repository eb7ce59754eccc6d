#include "server/model/cpu_model_state.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "kernels/base/byte_io.h"
#include "kernels/base/check.h"
#include "kernels/base/fault.h"
#include "kernels/base/number_text.h"
#include "kernels/base/status_macros.h"
#include "kernels/rms_norm/rms_norm.h"
#include "server/model/layer_state.h"
#include "server/model/memory_layer.h"
#include "server/model/weights.h"
#include "server/model/workspace.h"

namespace lethe {
CpuModelSnapshot::CpuModelSnapshot() = default;
CpuModelSnapshot::~CpuModelSnapshot() = default;

size_t CpuModelSnapshot::state_bytes() const {
  size_t bytes = features_.size() * sizeof(float);
  for (const std::unique_ptr<LayerSnapshot>& layer : layers_) {
    if (layer != nullptr) bytes += layer->state_bytes();
  }
  return bytes;
}

CpuModelState::CpuModelState(std::shared_ptr<const Model> model, const MemoryOverrides& overrides,
                             size_t stored_input_bytes)
    : ModelState(std::move(model), overrides),
      max_stored_bytes_(stored_input_bytes),
      features_(static_cast<size_t>(model_->config().width)),
      workspace_(std::make_unique<Workspace>(Workspace::ColumnsOf(model_->config()))) {}

CpuModelState::~CpuModelState() = default;

absl::StatusOr<std::unique_ptr<CpuModelState>> CpuModelState::Create(
    std::shared_ptr<const Model> model, const MemoryOverrides& overrides,
    size_t stored_input_bytes) {
  LETHE_RETURN_IF_ERROR(CheckOverrides(overrides));
  std::vector<LayerConfig> layers = LayersWith(model->config(), overrides);
  std::unique_ptr<CpuModelState> state(
      new CpuModelState(std::move(model), overrides, stored_input_bytes));
  state->layer_configs_ = std::make_shared<const std::vector<LayerConfig>>(std::move(layers));
  for (size_t i = 0; i < state->layer_configs_->size(); ++i) {
    absl::StatusOr<std::unique_ptr<LayerState>> layer = state->MakeLayer(i);
    if (!layer.ok()) {
      return absl::Status(layer.status().code(),
                          absl::StrCat("layers[", i, "]: ", layer.status().message()));
    }
    state->layers_.push_back(*std::move(layer));
  }
  return state;
}

absl::StatusOr<std::unique_ptr<LayerState>> CpuModelState::MakeLayer(size_t index) const {
  const auto norm_eps = static_cast<float>(model_->config().norm_eps);
  const LayerConfig& config = (*layer_configs_)[index];
  const LayerWeights& weights = model_->layer(index);
  if (const auto* local = std::get_if<LocalLayerConfig>(&config)) {
    return MakeLocalLayerState(*local, std::get<LocalWeights>(weights.layer), norm_eps);
  }
  if (std::holds_alternative<MlpLayerConfig>(config)) {
    return MakeMlpLayerState(std::get<MlpWeights>(weights.layer), norm_eps);
  }
  const auto& memory = std::get<MemoryLayerConfig>(config);
  const auto& memory_weights = std::get<MemoryWeights>(weights.layer);
  MemoryLayerState::Groups groups;
  for (size_t g = 0; g < memory.groups.size(); ++g) {
    LETHE_ASSIGN_OR_RETURN(
        std::unique_ptr<MemoryGroup> group,
        MemoryGroup::Create(memory.groups[g], memory_weights.groups[g], norm_eps));
    groups.push_back(std::move(group));
  }
  if (model_->config().bank == index) {
    return MemoryLayerState::MakeBank(memory_weights, norm_eps, std::move(groups),
                                      max_stored_bytes_);
  }
  return std::make_unique<MemoryLayerState>(memory_weights, norm_eps, std::move(groups));
}

absl::Status CpuModelState::EvaluateWithLogits(absl::Span<const int32_t> vocab_ids,
                                               absl::Span<float> logits) {
  const auto vocab_size = static_cast<size_t>(model_->config().vocab_size);
  LETHE_CHECK(logits.empty() || logits.size() == vocab_ids.size() * vocab_size);
  for (size_t first = 0; first < vocab_ids.size(); first += kBlockTokens) {
    const absl::Span<const int32_t> block = vocab_ids.subspan(first, kBlockTokens);
    const absl::Span<float> block_logits =
        logits.empty() ? logits : logits.subspan(first * vocab_size, block.size() * vocab_size);
    LETHE_RETURN_IF_ERROR(EvaluateBlock(block, block_logits));
  }
  return absl::OkStatus();
}

absl::Status CpuModelState::EvaluateBlock(absl::Span<const int32_t> vocab_ids,
                                          absl::Span<float> logits) {
  const int64_t width = model_->config().width;
  const auto count = static_cast<int64_t>(vocab_ids.size());
  const HeadWeights& head = model_->head();
  const absl::Span<float> x = workspace_->x(count * width);
  Embed(vocab_ids, x);
  for (const std::unique_ptr<LayerState>& layer : layers_) {
    LETHE_RETURN_IF_ERROR(layer->Forward(count, x, workspace_.get()));
  }
  if (!AllFinite(x)) return absl::InternalError("an activation is not finite");
  std::copy_n(x.end() - width, width, features_.begin());
  num_tokens_ += count;
  if (!logits.empty()) {
    const absl::Span<float> normed = workspace_->h(count * width);
    RmsNorm(x, head.final_norm, static_cast<float>(model_->config().norm_eps), normed);
    Matmul(normed, count, head.lm_head, logits);
  }
  return absl::OkStatus();
}

void CpuModelState::Embed(absl::Span<const int32_t> vocab_ids, absl::Span<float> x) const {
  const int64_t width = model_->config().width;
  const float scale = FaultActive(Fault::kConstantChanged) ? 1.0f + 0x1.0p-12f : 1.0f;
  for (size_t t = 0; t < vocab_ids.size(); ++t) {
    const int64_t vocab_id = vocab_ids[t];
    LETHE_CHECK(vocab_id >= 0 && vocab_id < model_->config().vocab_size);
    std::transform(model_->head().embed.begin() + vocab_id * width,
                   model_->head().embed.begin() + (vocab_id + 1) * width,
                   x.begin() + static_cast<int64_t>(t) * width,
                   [scale](float value) { return scale * value; });
  }
}

absl::Status CpuModelState::RepeatLast(int64_t num_tokens) {
  const absl::Span<float> x = workspace_->x(model_->config().width);
  LETHE_RETURN_IF_ERROR(mutable_bank()->RepeatLast(x, workspace_.get()));
  for (size_t i = *model_->config().bank + 1; i < layers_.size(); ++i) {
    LETHE_RETURN_IF_ERROR(layers_[i]->Forward(1, x, workspace_.get()));
  }
  if (!AllFinite(x)) return absl::InternalError("an activation is not finite");
  std::copy(x.begin(), x.end(), features_.begin());
  num_tokens_ = num_tokens;
  return absl::OkStatus();
}

absl::Status CpuModelState::Logits(absl::Span<float> logits) const {
  if (num_tokens_ == 0) return absl::FailedPreconditionError("there is no token to predict from");
  const HeadWeights& head = model_->head();
  WipedFloats normed(features_.size());
  RmsNorm(features_, head.final_norm, static_cast<float>(model_->config().norm_eps),
          absl::MakeSpan(normed));
  Matmul(normed, 1, head.lm_head, logits);
  return absl::OkStatus();
}

std::shared_ptr<const ModelSnapshot> CpuModelState::Snapshot() const {
  std::shared_ptr<CpuModelSnapshot> snapshot(new CpuModelSnapshot);
  snapshot->num_tokens_ = num_tokens_;
  for (const std::unique_ptr<LayerState>& layer : layers_) {
    snapshot->layers_.push_back(layer->Snapshot());
  }
  snapshot->features_ = features_;
  return snapshot;
}

absl::Status CpuModelState::Restore(const ModelSnapshot& any) {
  const auto* cpu = dynamic_cast<const CpuModelSnapshot*>(&any);
  if (cpu == nullptr) return absl::InvalidArgumentError("snapshot of another device");
  const CpuModelSnapshot& snapshot = *cpu;
  if (!snapshot.complete_) return absl::InvalidArgumentError("snapshot of a replay");
  if (snapshot.layers_.size() != layers_.size()) {
    return absl::InvalidArgumentError("snapshot of another model");
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    LETHE_RETURN_IF_ERROR(layers_[i]->Restore(*snapshot.layers_[i]));
  }
  num_tokens_ = snapshot.num_tokens_;
  features_ = snapshot.features_;
  return absl::OkStatus();
}

std::unique_ptr<CpuModelState> CpuModelState::EmptyCopy() const {
  std::unique_ptr<CpuModelState> copy(new CpuModelState(model_, overrides_, max_stored_bytes_));
  copy->layer_configs_ = layer_configs_;
  return copy;
}

std::unique_ptr<ModelState> CpuModelState::Clone() const {
  std::unique_ptr<CpuModelState> clone = EmptyCopy();
  clone->num_tokens_ = num_tokens_;
  clone->features_ = features_;
  for (const std::unique_ptr<LayerState>& layer : layers_) clone->layers_.push_back(layer->Clone());
  return clone;
}

absl::Status CpuModelState::SkipSlots(int64_t count) {
  for (const std::unique_ptr<LayerState>& layer : layers_) {
    LETHE_RETURN_IF_ERROR(layer->SkipSlots(count));
  }
  return absl::OkStatus();
}

void CpuModelState::AppendDigestParts(audit::StateParts* parts) const {
  AppendOptions(*layer_configs_, num_tokens_, parts);
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->AppendDigestParts(absl::StrCat("layer.", i), parts);
  }
}

size_t CpuModelState::state_bytes() const {
  size_t bytes = features_.size() * sizeof(float);
  for (const std::unique_ptr<LayerState>& layer : layers_) bytes += layer->state_bytes();
  return bytes;
}

size_t CpuModelState::stored_input_bytes() const {
  return bank() == nullptr ? 0 : bank()->stored_bytes();
}

const MemoryLayerState* CpuModelState::bank() const {
  const std::optional<size_t>& index = model_->config().bank;
  return index.has_value() ? static_cast<const MemoryLayerState*>(layers_[*index].get()) : nullptr;
}

MemoryLayerState* CpuModelState::mutable_bank() {
  return static_cast<MemoryLayerState*>(layers_[*model_->config().bank].get());
}

std::vector<ModelState::SvGroup> CpuModelState::SvGroups() const {
  std::vector<SvGroup> groups;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const std::vector<const svdd::SvMemory*> memories = layers_[i]->SvMemories();
    for (size_t g = 0; g < memories.size(); ++g) {
      if (memories[g] == nullptr) continue;
      groups.push_back({static_cast<int64_t>(i), static_cast<int64_t>(g), memories[g]});
    }
  }
  return groups;
}

}  // namespace lethe
