#include "server/model/token_costs.h"

#include <variant>

namespace lethe {
namespace {

int64_t CostOf(const LocalLayerConfig& layer, int64_t width) {
  const int64_t inner = layer.heads * layer.head_dim;
  return width * layer.conv_width + 4 * width * inner + 2 * layer.window * inner +
         3 * width * layer.mlp_width;
}

struct GroupCosts {
  int64_t take = 0;   // projections, convolutions, gates
  int64_t write = 0;  // the memory without its read
  int64_t read = 0;   // the read and what comes behind it
};

GroupCosts CostsOf(const GroupConfig& group, int64_t conv_width, int64_t width) {
  const int64_t keys = group.heads * group.key_dim;
  const int64_t values = group.heads * group.value_dim;
  const int64_t cells = keys * group.value_dim;
  GroupCosts costs;
  costs.take = (width + conv_width) * (keys + values);
  costs.read = (width + conv_width) * keys + values * width;
  switch (group.kind) {
    case MemoryKind::kSv:
      costs.read += static_cast<int64_t>(group.box_mass) * (keys + values);
      break;
    case MemoryKind::kPalimpsaD:
    case MemoryKind::kPalimpsaM:
      costs.take += width * 2 * group.heads + group.rank * (width + values);
      costs.write = 3 * cells;
      costs.read += 2 * cells + width * values;
      break;
    case MemoryKind::kVla:
      costs.take += keys * group.key_dim;
      costs.write = 2 * keys * group.key_dim + cells;
      costs.read += cells;
      break;
    case MemoryKind::kOvq:
      costs.write = group.slots * keys;
      costs.read += group.slots * (keys + values);
      break;
    case MemoryKind::kWindow:
      costs.read += group.window * (keys + values);
      break;
  }
  return costs;
}

}  // namespace

TokenCosts TokenCostsOf(const ModelConfig& config) {
  TokenCosts costs;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    int64_t cost = 0;
    if (const auto* local = std::get_if<LocalLayerConfig>(&layer)) {
      cost = CostOf(*local, config.width);
    } else if (const auto* mlp = std::get_if<MlpLayerConfig>(&layer)) {
      cost = 3 * config.width * mlp->mlp_width;
    } else {
      const auto& memory = std::get<MemoryLayerConfig>(layer);
      for (const GroupConfig& group : memory.groups) {
        const GroupCosts of_group = CostsOf(group, memory.conv_width, config.width);
        cost += of_group.take + of_group.write + of_group.read;
        if (config.bank == i) {
          costs.local += of_group.take;
          costs.replay += of_group.write;
        }
      }
    }
    costs.model += cost;
    if (config.bank.has_value() && i < *config.bank) costs.local += cost;
  }
  return costs;
}

}  // namespace lethe
