#include "server/model/model_state.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

#include "kernels/base/byte_io.h"
#include "kernels/base/number_text.h"
#include "kernels/base/status_macros.h"
#include "server/model/cpu_model_state.h"
#include "server/model/model_backend.h"

namespace lethe {
namespace {

absl::Status CheckReal(const char* name, const std::optional<double>& value, double min,
                       double max) {
  if (!value.has_value() || (*value >= min && *value <= max)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " must be a number in ", NumberText(min), " ... ", NumberText(max)));
}

void Apply(const MemoryOverrides& overrides, GroupConfig* group) {
  if (group->kind == MemoryKind::kOvq) group->slots = overrides.ovq_slots.value_or(group->slots);
  if (group->kind != MemoryKind::kSv) return;
  group->box_mass = overrides.sv_box_mass.value_or(group->box_mass);
  group->sigma = overrides.sv_sigma.value_or(group->sigma);
  group->ridge = overrides.sv_ridge.value_or(group->ridge);
}

std::string OptionBytes(const std::vector<LayerConfig>& layers) {
  ByteWriter writer;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto* memory = std::get_if<MemoryLayerConfig>(&layers[i]);
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

}  // namespace

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

std::vector<LayerConfig> LayersWith(const ModelConfig& config, const MemoryOverrides& overrides) {
  std::vector<LayerConfig> layers = config.layers;
  for (LayerConfig& layer : layers) {
    if (auto* memory = std::get_if<MemoryLayerConfig>(&layer)) {
      for (GroupConfig& group : memory->groups) Apply(overrides, &group);
    }
  }
  return layers;
}

absl::StatusOr<std::unique_ptr<ModelState>> ModelState::Create(std::shared_ptr<const Model> model,
                                                               const MemoryOverrides& overrides,
                                                               size_t stored_input_bytes) {
  LETHE_ASSIGN_OR_RETURN(const std::shared_ptr<ModelBackend> backend, model->backend());
  if (backend != nullptr) return backend->NewState(std::move(model), overrides);
  LETHE_ASSIGN_OR_RETURN(std::unique_ptr<CpuModelState> state,
                         CpuModelState::Create(std::move(model), overrides, stored_input_bytes));
  return state;
}

void ModelState::AppendOptions(const std::vector<LayerConfig>& layers, int64_t num_tokens,
                               audit::StateParts* parts) {
  parts->Add("options", OptionBytes(layers));
  ByteWriter tokens;
  tokens.U64(static_cast<uint64_t>(num_tokens));
  parts->Add("tokens", tokens.bytes());
}

}  // namespace lethe
