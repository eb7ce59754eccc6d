#include "server/device/slot_layout.h"

#include <variant>

namespace lethe {
namespace {

// Of an image; the pools' own alignment is state_pool.cc's.
constexpr size_t kPartAlignment = 16;

// The sizes of a group's parts in words of four bytes, in the order of slot_layout.h.
std::vector<int64_t> GroupWords(const GroupConfig& group) {
  const int64_t heads = group.heads;
  const int64_t key_dim = group.key_dim;
  const int64_t value_dim = group.value_dim;
  switch (group.kind) {
    case MemoryKind::kSv:
      return {};
    case MemoryKind::kPalimpsaD:
    case MemoryKind::kPalimpsaM: {
      const int64_t size = heads * value_dim * key_dim;
      return {size, group.metaplasticity ? size : 0};
    }
    case MemoryKind::kVla:
      return {heads * key_dim * key_dim, heads * value_dim * key_dim,
              group.read_norm_paper ? heads * key_dim : 0};
    case MemoryKind::kOvq:
      return {heads * group.slots * key_dim, heads * group.slots * value_dim, heads * group.slots,
              heads * kOvqChunkTokens * key_dim, heads * kOvqChunkTokens * value_dim};
    case MemoryKind::kWindow:
      return {heads * (group.window - 1) * key_dim, heads * (group.window - 1) * value_dim};
  }
  return {};
}

}  // namespace

MemoryColumns::MemoryColumns(const MemoryLayerConfig& config) {
  for (const GroupConfig& group : config.groups) {
    GroupColumns columns;
    columns.num_keys = group.heads * group.key_dim;
    columns.num_values = group.heads * group.value_dim;
    columns.q_begin = num_channels;
    columns.k_begin = columns.q_begin + columns.num_keys;
    columns.v_begin = columns.k_begin + columns.num_keys;
    num_channels = columns.v_begin + columns.num_values;
    num_reads += columns.num_values;
    groups.push_back(columns);
  }
}

SlotLayout::SlotLayout(const ModelConfig& config) {
  for (const LayerConfig& layer : config.layers) {
    layers_.emplace_back();
    if (const auto* local = std::get_if<LocalLayerConfig>(&layer)) {
      const int64_t row = local->heads * (local->window - 1) * local->head_dim;
      layers_.back().own = {Add((local->conv_width - 1) * config.width), Add(row), Add(row)};
    } else if (const auto* memory = std::get_if<MemoryLayerConfig>(&layer)) {
      AddMemory(*memory);
    }
  }
}

void SlotLayout::AddMemory(const MemoryLayerConfig& config) {
  const MemoryColumns columns(config);
  layers_.back().own = {Add((config.conv_width - 1) * columns.num_channels)};
  for (const GroupConfig& group : config.groups) {
    std::vector<SlotPart> parts;
    for (const int64_t num_words : GroupWords(group)) parts.push_back(Add(num_words));
    layers_.back().groups.push_back(std::move(parts));
  }
}

SlotPart SlotLayout::Add(int64_t num_words) {
  const SlotPart part{image_bytes_, static_cast<size_t>(num_words) * sizeof(float)};
  image_bytes_ += (part.bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  if (part.bytes > 0) parts_.push_back(part);
  return part;
}

OvqShape OvqShapeOf(const GroupConfig& config) {
  return {config.key_dim, config.value_dim, config.slots, kOvqChunkTokens};
}

VlaOptions VlaOptionsOf(const GroupConfig& config) {
  VlaOptions options;
  options.num_heads = config.heads;
  options.key_dim = config.key_dim;
  options.value_dim = config.value_dim;
  options.variant = config.rls ? VlaVariant::kRls : VlaVariant::kVla;
  options.nudge = config.nudge;
  options.lambda0 = config.lambda0;
  options.read_norm = config.read_norm_paper ? VlaReadNorm::kPaper : VlaReadNorm::kRms;
  return options;
}

WindowAttentionShape WindowShapeOf(const GroupConfig& config) {
  return {config.heads, config.key_dim, config.value_dim, config.window};
}

}  // namespace lethe
