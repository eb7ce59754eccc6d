#include "server/certification/session_methods.h"

#include <variant>

#include "absl/strings/str_cat.h"

#include "server/model/config.h"

namespace lethe {
namespace {

audit::LayerMethod MethodOf(const GroupConfig& group, ForgetWay way) {
  if (way == ForgetWay::kReevaluation) return audit::LayerMethod::kReevaluation;
  return group.kind == MemoryKind::kSv ? audit::LayerMethod::kDecremental
                                       : audit::LayerMethod::kReplay;
}

// What solves a vector session again: its set change, or everything from nothing.
audit::LayerMethod VectorMethod(ForgetWay way) {
  return way == ForgetWay::kReplay ? audit::LayerMethod::kDecremental
                                   : audit::LayerMethod::kCanonicalResolve;
}

// A layer with support-vector heads is decremental, whatever its other heads do.
audit::LayerMethod MethodOf(const MemoryLayerConfig& layer, ForgetWay way) {
  audit::LayerMethod method = MethodOf(layer.groups.front(), way);
  for (const GroupConfig& group : layer.groups) {
    if (group.kind == MemoryKind::kSv) method = MethodOf(group, way);
  }
  return method;
}

}  // namespace

std::vector<GroupMethod> GroupMethods(const SessionEntry& entry, ForgetWay way) {
  if (entry.model == nullptr) return {{"layer.0.group.0.sv", VectorMethod(way), true}};
  const ModelConfig& config = entry.model->config();
  std::vector<GroupMethod> methods;
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    const auto* memory = std::get_if<MemoryLayerConfig>(&config.layers[layer]);
    if (memory == nullptr) continue;
    for (size_t group = 0; group < memory->groups.size(); ++group) {
      methods.push_back({absl::StrCat("layer.", layer, ".group.", group, ".",
                                      MemoryKindName(memory->groups[group].kind)),
                         MethodOf(memory->groups[group], way), memory->bounded});
    }
  }
  return methods;
}

// Token-wise layers hold no state, so no report names them. Local layers evaluate again on either
// way, after a replay only the tokens behind each gap.
std::vector<audit::LayerReport> LayerReports(const SessionEntry& entry, ForgetWay way) {
  if (entry.model == nullptr) return {{0, "memory", VectorMethod(way)}};
  const ModelConfig& config = entry.model->config();
  std::vector<audit::LayerReport> reports;
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    if (std::holds_alternative<MlpLayerConfig>(config.layers[layer])) continue;
    const auto* memory = std::get_if<MemoryLayerConfig>(&config.layers[layer]);
    reports.push_back(
        {static_cast<uint64_t>(layer), memory != nullptr ? "memory" : "local",
         memory != nullptr ? MethodOf(*memory, way) : audit::LayerMethod::kReevaluation});
  }
  return reports;
}

bool HasSelected(const SessionEntry& entry) {
  return entry.vector_options.has_value() &&
         static_cast<const VectorSession&>(*entry.session).selected();
}

}  // namespace lethe
