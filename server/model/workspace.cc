#include "server/model/workspace.h"

#include <variant>

namespace lethe {
namespace {

int64_t GroupColumns(const GroupConfig& group) {
  return std::max({group.heads * group.key_dim, group.heads * group.value_dim, group.rank});
}

int64_t LayerColumns(const LayerConfig& layer) {
  if (const auto* local = std::get_if<LocalLayerConfig>(&layer)) {
    return std::max(local->heads * local->head_dim, local->mlp_width);
  }
  if (const auto* mlp = std::get_if<MlpLayerConfig>(&layer)) return mlp->mlp_width;
  int64_t columns = 0;
  int64_t concatenated = 0;
  for (const GroupConfig& group : std::get<MemoryLayerConfig>(layer).groups) {
    columns = std::max(columns, GroupColumns(group));
    concatenated += group.heads * group.value_dim;
  }
  return std::max(columns, concatenated);
}

}  // namespace

Workspace::Columns Workspace::ColumnsOf(const ModelConfig& config) {
  Columns columns;
  columns.width = config.width;
  for (const LayerConfig& layer : config.layers) {
    columns.inner = std::max(columns.inner, LayerColumns(layer));
  }
  return columns;
}

}  // namespace lethe
