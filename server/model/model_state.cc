#include "server/model/model_state.h"

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
namespace {

absl::Status CheckReal(const char* name, const std::optional<double>& value, double min,
                       double max) {
  if (!value.has_value() || (*value >= min && *value <= max)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be a number in ", NumberText(min), " ... ", NumberText(max)));
}

absl::Status CheckOverrides(const MemoryOverrides& overrides) {
  if (overrides.ovq_slots.has_value() &&
      (*overrides.ovq_slots < kSlotsMin || *overrides.ovq_slots > kSlotsMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("ovq_slots must be an integer in ", kSlotsMin, " ... ", kSlotsMax));
  }
  LETHE_RETURN_IF_ERROR(CheckReal("sv_box_mass", overrides.sv_box_mass, kBoxMassMin, kBoxMassMax));
  LETHE_RETURN_IF_ERROR(CheckReal("sv_sigma", overrides.sv_sigma, kSigmaMin, kSigmaMax));
  return CheckReal("sv_ridge", overrides.sv_ridge, kRidgeMin, kRidgeMax);
}

void Apply(const MemoryOverrides& overrides, GroupConfig* group) {
  if (group->kind == MemoryKind::kOvq) group->slots = overrides.ovq_slots.value_or(group->slots);
  if (group->kind != MemoryKind::kSv) return;
  group->box_mass = overrides.sv_box_mass.value_or(group->box_mass);
  group->sigma = overrides.sv_sigma.value_or(group->sigma);
  group->ridge = overrides.sv_ridge.value_or(group->ridge);
}

}  // namespace

ModelSnapshot::ModelSnapshot() = default;
ModelSnapshot::~ModelSnapshot() = default;

size_t ModelSnapshot::state_bytes() const {
  size_t bytes = features_.size() * sizeof(float);
  for (const std::unique_ptr<LayerSnapshot>& layer : layers_) {
    if (layer != nullptr) bytes += layer->state_bytes();
  }
  return bytes;
}

ModelState::ModelState(std::shared_ptr<const Model> model, const MemoryOverrides& overrides,
                       size_t stored_input_bytes)
    : model_(std::move(model)),
      overrides_(overrides),
      max_stored_bytes_(stored_input_bytes),
      features_(static_cast<size_t>(model_->config().width)),
      workspace_(std::make_unique<Workspace>(Workspace::ColumnsOf(model_->config()))) {}

ModelState::~ModelState() = default;

absl::StatusOr<std::unique_ptr<ModelState>> ModelState::Create(std::shared_ptr<const Model> model,
                                                               const MemoryOverrides& overrides,
                                                               size_t stored_input_bytes) {
  LETHE_RETURN_IF_ERROR(CheckOverrides(overrides));
  std::vector<LayerConfig> layers = model->config().layers;
  for (LayerConfig& layer : layers) {
    if (auto* memory = std::get_if<MemoryLayerConfig>(&layer)) {
      for (GroupConfig& group : memory->groups) Apply(overrides, &group);
    }
  }
  std::unique_ptr<ModelState> state(
      new ModelState(std::move(model), overrides, stored_input_bytes));
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

absl::StatusOr<std::unique_ptr<LayerState>> ModelState::MakeLayer(size_t index) const {
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

absl::Status ModelState::Evaluate(absl::Span<const int32_t> vocab_ids) {
  return EvaluateWithLogits(vocab_ids, {});
}

absl::Status ModelState::EvaluateWithLogits(absl::Span<const int32_t> vocab_ids,
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

absl::Status ModelState::EvaluateBlock(absl::Span<const int32_t> vocab_ids,
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

void ModelState::Embed(absl::Span<const int32_t> vocab_ids, absl::Span<float> x) const {
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

absl::Status ModelState::RepeatLast(int64_t num_tokens) {
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

absl::Status ModelState::Logits(absl::Span<float> logits) const {
  if (num_tokens_ == 0) return absl::FailedPreconditionError("there is no token to predict from");
  const HeadWeights& head = model_->head();
  WipedFloats normed(features_.size());
  RmsNorm(features_, head.final_norm, static_cast<float>(model_->config().norm_eps),
          absl::MakeSpan(normed));
  Matmul(normed, 1, head.lm_head, logits);
  return absl::OkStatus();
}

std::shared_ptr<const ModelSnapshot> ModelState::Snapshot() const {
  std::shared_ptr<ModelSnapshot> snapshot(new ModelSnapshot);
  snapshot->num_tokens_ = num_tokens_;
  for (const std::unique_ptr<LayerState>& layer : layers_) {
    snapshot->layers_.push_back(layer->Snapshot());
  }
  snapshot->features_ = features_;
  return snapshot;
}

absl::Status ModelState::Restore(const ModelSnapshot& snapshot) {
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

std::unique_ptr<ModelState> ModelState::EmptyCopy() const {
  std::unique_ptr<ModelState> copy(new ModelState(model_, overrides_, max_stored_bytes_));
  copy->layer_configs_ = layer_configs_;
  return copy;
}

std::unique_ptr<ModelState> ModelState::Clone() const {
  std::unique_ptr<ModelState> clone = EmptyCopy();
  clone->num_tokens_ = num_tokens_;
  clone->features_ = features_;
  for (const std::unique_ptr<LayerState>& layer : layers_) clone->layers_.push_back(layer->Clone());
  return clone;
}

absl::Status ModelState::SkipSlots(int64_t count) {
  for (const std::unique_ptr<LayerState>& layer : layers_) {
    LETHE_RETURN_IF_ERROR(layer->SkipSlots(count));
  }
  return absl::OkStatus();
}

std::string ModelState::OptionBytes() const {
  ByteWriter writer;
  for (size_t i = 0; i < layer_configs_->size(); ++i) {
    const auto* memory = std::get_if<MemoryLayerConfig>(&(*layer_configs_)[i]);
    if (memory == nullptr) continue;
    for (size_t g = 0; g < memory->groups.size(); ++g) {
      const GroupConfig& group = memory->groups[g];
      writer.U64(i);
      writer.U64(g);
      writer.String(MemoryKindName(group.kind));
      if (group.kind == MemoryKind::kSv) {
        writer.F64(group.sigma);
        writer.F64(group.box_mass);
        writer.F64(group.ridge);
      }
      if (group.kind == MemoryKind::kOvq) writer.U64(static_cast<uint64_t>(group.slots));
    }
  }
  return writer.Take();
}

void ModelState::AppendDigestParts(audit::StateParts* parts) const {
  parts->Add("options", OptionBytes());
  ByteWriter num_tokens;
  num_tokens.U64(static_cast<uint64_t>(num_tokens_));
  parts->Add("tokens", num_tokens.bytes());
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->AppendDigestParts(absl::StrCat("layer.", i), parts);
  }
}

size_t ModelState::state_bytes() const {
  size_t bytes = features_.size() * sizeof(float);
  for (const std::unique_ptr<LayerState>& layer : layers_) bytes += layer->state_bytes();
  return bytes;
}

size_t ModelState::stored_input_bytes() const {
  return bank() == nullptr ? 0 : bank()->stored_bytes();
}

const MemoryLayerState* ModelState::bank() const {
  const std::optional<size_t>& index = model_->config().bank;
  return index.has_value() ? static_cast<const MemoryLayerState*>(layers_[*index].get()) : nullptr;
}

MemoryLayerState* ModelState::mutable_bank() {
  return static_cast<MemoryLayerState*>(layers_[*model_->config().bank].get());
}

std::vector<ModelState::SvGroup> ModelState::SvGroups() const {
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
