#include "server/device/slot_digest.h"

#include <algorithm>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"

#include "kernels/base/byte_io.h"
#include "kernels/base/check.h"
#include "kernels/causal_conv/causal_conv.h"
#include "kernels/ovq/ovq_batch.h"
#include "server/device/sv_session.h"

namespace lethe {
namespace {

template <typename T>
absl::Span<const T> PartOf(absl::Span<const std::byte> image, const SlotPart& part) {
  return {reinterpret_cast<const T*>(image.data() + part.begin), part.bytes / sizeof(T)};
}

absl::Span<const float> Rows(absl::Span<const float> rows, int64_t first, int64_t count,
                             int64_t row) {
  return rows.subspan(static_cast<size_t>(first * row), static_cast<size_t>(count * row));
}

// Columns [begin, begin + num_columns) of a tail [width - 1][num_channels], whose input of rank r lies in
// row r mod (width - 1).
void AppendTail(absl::Span<const float> tail, int64_t width, int64_t num_channels, int64_t begin,
                int64_t num_columns, int64_t num_tokens, ByteWriter* out) {
  CausalConvState state(num_columns, width);
  const int64_t num_places = width - 1;
  for (int64_t rank = std::max<int64_t>(0, num_tokens - num_places); rank < num_tokens; ++rank) {
    state.Append(Rows(tail, rank % num_places, 1, num_channels)
                     .subspan(static_cast<size_t>(begin), static_cast<size_t>(num_columns)));
  }
  state.AppendTo(out);
}

// Pools keep [H][window - 1][dim], the digest [window - 1][H][dim].
WipedFloats TokenRow(absl::Span<const float> pool, const WindowAttentionShape& shape, int64_t dim,
                     int64_t rank) {
  const int64_t num_places = shape.window - 1;
  WipedFloats row;
  for (int64_t head = 0; head < shape.num_heads; ++head) {
    const auto of_head = Rows(pool, head * num_places + rank % num_places, 1, dim);
    row.insert(row.end(), of_head.begin(), of_head.end());
  }
  return row;
}

void AppendWindow(const WindowAttentionShape& shape, absl::Span<const float> keys,
                  absl::Span<const float> values, int64_t num_tokens, ByteWriter* out) {
  WindowAttentionState state(shape);
  for (int64_t rank = std::max<int64_t>(0, num_tokens - (shape.window - 1)); rank < num_tokens;
       ++rank) {
    state.Append(TokenRow(keys, shape, shape.key_dim, rank),
                 TokenRow(values, shape, shape.value_dim, rank));
  }
  state.AppendTo(out);
}

void AppendOvq(const GroupConfig& group, absl::Span<const std::byte> image,
               const std::vector<SlotPart>& parts, int64_t num_tokens, ByteWriter* out) {
  const OvqShape shape = OvqShapeOf(group);
  const int64_t filled = OvqFilledSlots(shape, num_tokens);
  const int64_t pending = num_tokens % kOvqChunkTokens;
  const auto keys = PartOf<float>(image, parts[0]);
  const auto values = PartOf<float>(image, parts[1]);
  const auto counts = PartOf<int32_t>(image, parts[2]);
  const auto pending_keys = PartOf<float>(image, parts[3]);
  const auto pending_values = PartOf<float>(image, parts[4]);
  out->String("ovq");
  out->I64(num_tokens);
  out->I64(num_tokens - pending);
  for (int64_t head = 0; head < group.heads; ++head) {
    const int64_t first = head * group.slots;
    out->Array<float>(Rows(keys, first, filled, group.key_dim));
    out->Array<float>(Rows(values, first, filled, group.value_dim));
    out->Array<int32_t>(counts.subspan(static_cast<size_t>(first), static_cast<size_t>(filled)));
  }
  for (int64_t t = 0; t < pending; ++t) {
    for (int64_t head = 0; head < group.heads; ++head) {
      const int64_t row = head * kOvqChunkTokens + t;
      out->Array<float>(Rows(pending_keys, row, 1, group.key_dim));
      out->Array<float>(Rows(pending_values, row, 1, group.value_dim));
    }
  }
}

void AppendMemory(const GroupConfig& group, absl::Span<const std::byte> image,
                  const std::vector<SlotPart>& parts, int64_t num_tokens, ByteWriter* out) {
  if (group.kind == MemoryKind::kWindow) {
    AppendWindow(WindowShapeOf(group), PartOf<float>(image, parts[0]),
                 PartOf<float>(image, parts[1]), num_tokens, out);
    return;
  }
  if (group.kind == MemoryKind::kOvq) {
    AppendOvq(group, image, parts, num_tokens, out);
    return;
  }
  out->String(IsPalimpsa(group) ? "palimpsa" : "vla");
  out->I64(num_tokens);
  if (group.kind == MemoryKind::kVla) out->I64(num_tokens);  // its step count
  for (const SlotPart& part : parts) out->Array<float>(PartOf<float>(image, part));
}

void AddPart(const std::string& name, const ByteWriter& bytes, audit::StateParts* parts) {
  parts->Add(name, bytes.bytes());
}

void AppendLocal(const std::string& prefix, const LocalLayerConfig& local, int64_t width,
                 absl::Span<const std::byte> image, const LayerParts& layer, int64_t num_tokens,
                 audit::StateParts* parts) {
  ByteWriter conv;
  AppendTail(PartOf<float>(image, layer.own[0]), local.conv_width, width, 0, width, num_tokens,
             &conv);
  AddPart(prefix + ".conv", conv, parts);
  ByteWriter window;
  AppendWindow({local.heads, local.head_dim, local.head_dim, local.window},
               PartOf<float>(image, layer.own[1]), PartOf<float>(image, layer.own[2]), num_tokens,
               &window);
  AddPart(prefix + ".window", window, parts);
}

void AppendMemoryLayer(const std::string& prefix, const MemoryLayerConfig& memory,
                       absl::Span<const std::byte> image, const LayerParts& layer,
                       int64_t num_tokens, const SvSession* sv, size_t* num_sv_groups,
                       audit::StateParts* parts) {
  const MemoryColumns columns(memory);
  const auto tail = PartOf<float>(image, layer.own[0]);
  for (size_t g = 0; g < memory.groups.size(); ++g) {
    const std::string group = absl::StrCat(prefix, ".group.", g);
    const GroupColumns& of_group = columns.groups[g];
    const auto append = [&](int64_t begin, int64_t num_columns, ByteWriter* out) {
      AppendTail(tail, memory.conv_width, columns.num_channels, begin, num_columns, num_tokens,
                 out);
    };
    ByteWriter tails;
    append(of_group.q_begin, of_group.num_keys, &tails);
    append(of_group.k_begin, of_group.num_keys, &tails);
    append(of_group.v_begin, of_group.num_values, &tails);
    AddPart(group + ".conv", tails, parts);
    if (memory.groups[g].kind == MemoryKind::kSv) {
      if (sv != nullptr) sv->AppendDigestParts((*num_sv_groups)++, group, parts);
      continue;
    }
    ByteWriter state;
    AppendMemory(memory.groups[g], image, layer.groups[g], num_tokens, &state);
    AddPart(group + ".memory", state, parts);
  }
}

}  // namespace

void AppendSlotDigest(const ModelConfig& config, const SlotLayout& layout,
                      absl::Span<const std::byte> image, int64_t num_tokens, const SvSession* sv,
                      audit::StateParts* parts) {
  size_t num_sv_groups = 0;
  LETHE_CHECK(image.size() == layout.image_bytes());
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const std::string prefix = absl::StrCat("layer.", i);
    const LayerParts& layer = layout.layers()[i];
    if (const auto* local = std::get_if<LocalLayerConfig>(&config.layers[i])) {
      AppendLocal(prefix, *local, config.width, image, layer, num_tokens, parts);
    } else if (const auto* memory = std::get_if<MemoryLayerConfig>(&config.layers[i])) {
      AppendMemoryLayer(prefix, *memory, image, layer, num_tokens, sv, &num_sv_groups, parts);
    }
  }
}

WipedVector<std::byte> InitialImage(const ModelConfig& config, const SlotLayout& layout) {
  WipedVector<std::byte> image(layout.image_bytes());
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const auto* memory = std::get_if<MemoryLayerConfig>(&config.layers[i]);
    if (memory == nullptr) continue;
    for (size_t g = 0; g < memory->groups.size(); ++g) {
      if (memory->groups[g].kind != MemoryKind::kVla) continue;
      const std::vector<SlotPart>& parts = layout.layers()[i].groups[g];
      const auto span = [&](const SlotPart& part) {
        return absl::Span<float>(reinterpret_cast<float*>(image.data() + part.begin),
                                 part.bytes / sizeof(float));
      };
      VlaInitialState(VlaOptionsOf(memory->groups[g]),
                      {span(parts[0]), span(parts[1]), span(parts[2])});
    }
  }
  return image;
}

}  // namespace lethe
